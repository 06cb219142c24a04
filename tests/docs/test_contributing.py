"""CONTRIBUTING's recipes, carried out on a scratch copy, and its lists of files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def named(text: str) -> set[str]:
    """The files that a text names, from the root of the repository."""
    found = re.findall(r"`([\w/.-]+\.(?:py|md|yaml|ipynb))`", text)
    return {path if (ROOT / path).exists() else f"recsim_train/{path}" for path in found}


@pytest.mark.parametrize("title", SECTIONS)
def test_files_that_a_recipe_names_exist(title: str) -> None:
    for path in named(SECTIONS[title]):
        assert (ROOT / path).is_file(), f"{title}: {path}"


WORDS = {
    "strategy/base.py": ("lock_step", "def problems", "def topology", "def follow", "def finish",
                         "steady", "kind", "summary", "source", "def option"),
    "strategy/parts.py": ("def part", "class Part"),
    "data/source.py": ("class Source", "def rows", "def batch", "def look", "def write"),
    "config/formats.py": ("FORMATS",),
    "strategy/effects.py": ("class Synced", "EFFECTS", "COLLECTIVE", "LOCAL"),
    "strategy/driver.py": ("class Allowed",),
    "strategy/operations.py": ("def operation",),
    "workload/operations.py": ("OPS",),
    "sim/operations.py": ("GHOSTS",),
    "executor/operations.py": ("KERNELS",),
    "sim/perform.py": ("PERFORM",),
    "executor/runtime.py": ("PERFORM",),
    "config/cluster.py": ("class Costs", "class Usual"),
    "calibration/prices.py": ("KERNEL_PRIORS", "READ_PRIORS"),
    "config/presets.py": ("PRESETS",),
    "config/errors.py": ("class UserError", "class RunFailed"),
}  # fmt: skip
"""What the recipes say is in a file."""


@pytest.mark.parametrize("path", WORDS)
def test_what_recipes_speak_of_is_where_they_say(path: str) -> None:
    code = (ROOT / "recsim_train" / path).read_text(encoding="utf-8")
    for words in WORDS[path]:
        assert words in code
        assert words.split()[-1] in TEXT


@dataclass(frozen=True)
class Edit:
    """``text`` goes behind the first ``after`` of a file; without ``after`` it is a new file."""

    path: str
    text: str
    after: str = ""


def in_profiles(price: str) -> list[Edit]:
    """The price in every profile of the repository."""
    return [
        Edit(path, f"\n  {price}", "\ncosts:")
        for path in (
            "cluster_profiles/reference-2core.yaml",
            "cluster_profiles/paper-20core-25gbit.yaml",
            "cluster_profiles/example-racks.yaml",
            "tests/frozen-2core.yaml",
        )
    ]


RECIPES: dict[str, list[Edit]] = {
    "Add a part": [
        Edit(
            "recsim_train/strategy/halfway.py",
            '''"""A synchroniser of a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recsim_train.strategy.effects import Compute, Rest
from recsim_train.strategy.operations import NEGATED
from recsim_train.strategy.synchronisers import ModelAveraging
from recsim_train.strategy.values import Dense


@dataclass
class Halfway(ModelAveraging):
    """Averages, and turns the mean's sign twice."""

    kind: ClassVar[str] = "halfway"
    summary: ClassVar[str] = "averaging with detours"

    async def common(self, mean: Dense) -> Dense:
        await Rest()
        turned: Dense = await Compute(NEGATED, await Compute(NEGATED, mean))
        return turned
''',
        ),
        Edit(
            "recsim_train/strategy/parts.py",
            '\n        "halfway": "recsim_train.strategy.halfway:Halfway",',
            '"synchroniser": {',
        ),
    ],
    "Add a strategy": [
        Edit(
            "recsim_train/strategy/scratch.py",
            '''"""A strategy of a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from recsim_train.strategy.base import (
    TRAINERS,
    EmbeddingService,
    Group,
    Loop,
    Strategy,
    Topology,
    option,
)
from recsim_train.strategy.effects import Compute, batches
from recsim_train.strategy.halfway import Halfway
from recsim_train.strategy.operations import APPLY
from recsim_train.strategy.parts import part
from recsim_train.strategy.steps import learn
from recsim_train.strategy.synchronisers import Held, Round, Synchroniser


@dataclass
class Scratch(Strategy):
    """Averages after every step."""

    kind: ClassVar[str] = "scratch"
    summary: ClassVar[str] = "a strategy of a test"
    source: ClassVar[str] = "CONTRIBUTING.md"
    lock_step: ClassVar[bool] = True

    meeting: Synchroniser = part(Halfway, help="how replicas meet")

    def topology(self, threads: int) -> Topology:
        return Topology(
            loops=(Loop("worker"),),
            services=(EmbeddingService(apply="together"),),
            groups=(Group(TRAINERS, loop="worker"),),
        )

    async def worker(self) -> None:
        async for batch in batches():
            await Compute(APPLY, await learn(batch, "server"))
            await self.meeting.meet(Held(), Round(TRAINERS, last=self.always))
''',
        ),
        Edit(
            "recsim_train/strategy/registry.py",
            '\n    "scratch": "recsim_train.strategy.scratch:Scratch",',
            "_BUILT_IN = {",
        ),
        Edit(
            "README.md",
            "\n| `scratch` | of a test | predicted and run |",
            "| strategy | what it is | status |\n|---|---|---|",
        ),
        Edit(
            "docs/reference/strategies.md",
            "\n\n## Scratch\n\n`scratch` is of a test.\n",
            "# Rules of the strategies",
        ),
        Edit("experiments/all_strategies.yaml", "\n  - scratch", "\nstrategy:"),
        Edit(
            "tests/conformance/test_worlds_agree.py",
            '\n    "scratch": StrategyChoice(kind="scratch"),',
            "\nSTRATEGIES = {",
        ),
        Edit(
            "tests/strategy/test_programs.py",
            '''

def test_scratch_averages_after_every_step() -> None:
    turned = ["Rest", "negated", "negated", "interpolate"]
    meeting = ["snapshot", "AllReduce", *turned, "Synced"]
    scratch = create(type("Chosen", (), {"kind": "scratch", "options": {"always": True}}))
    assert drive(worker(scratch), 2) == [*LEARN, "apply", *meeting] * 2
''',
            'LEARN = ["Lookup", "forward_backward", "Update"]',
        ),
    ],
    "Add an option": [
        Edit(
            "recsim_train/strategy/scratch.py",
            '\n    always: bool = option(True, help="go the whole way")',
            'help="how replicas meet")',
        ),
    ],
    "Add an operation": [
        Edit(
            "recsim_train/strategy/operations.py",
            '''

@operation
def NEGATED(value: Dense) -> Dense:
    """The value with the other sign."""
''',
            '"""One local optimizer step on this host\'s replica."""\n',
        ),
        Edit(
            "recsim_train/workload/operations.py",
            '\n    "negated": Op('
            'lambda s: {"turned_sign": s.elements, "interpreter": 2}, fit="dense"),',
            "OPS: dict[str, Op] = {",
        ),
        Edit(
            "recsim_train/sim/operations.py",
            '\n    "negated": _vector,',
            "GHOSTS: dict[str, Callable[..., Ghost]] = {",
        ),
        Edit(
            "recsim_train/executor/operations.py",
            '\n    "negated": lambda worker, value: type(value)(-value.tensor),',
            "KERNELS: dict[str, Callable[..., object]] = {",
        ),
    ],
    "Add a price": [
        Edit(
            "recsim_train/config/cluster.py",
            '\n    turned_sign: Annotated[Price, Usual(1e-10)]\n    """One sign turned."""',
            '    """Latency of one step of a ring collective, beyond its bytes and CPU time."""',
        ),
        Edit(
            "recsim_train/calibration/prices.py",
            '\n    "turned_sign",',
            "KERNEL_PRIORS = _usual(",
        ),
        *in_profiles("turned_sign: {value: 0.1 ns, uncertainty: 100 %, basis: magnitude}"),
    ],
    "Add a data format": [
        Edit(
            "recsim_train/data/decimals.py",
            '''"""A format of a test: ids and counts in decimals, with a header."""

from __future__ import annotations

from itertools import islice

import numpy as np

from recsim_train.config.errors import UserError
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.files import beginning, open_bytes
from recsim_train.data.generator import Generator, dense_values
from recsim_train.data.source import Source, check_columns

EXPECTED = "a CSV file whose header begins with label"


class Rows:
    def __init__(self, path):
        self.done, self._file = 0, open_bytes(path, EXPECTED)
        self._file.readline()

    def take(self, count):
        lines = list(islice(self._file, count))
        self.done += len(lines)
        return [lines] if lines else []

    def skip(self, count):
        return sum(map(len, self.take(count)))

    def close(self):
        self._file.close()


class Decimals(Source):
    """A CSV file."""

    def rows(self):
        return Rows(self.path)

    def look(self):
        if not beginning(self.path, EXPECTED)[0].startswith(b"label,"):
            raise UserError(f"{self.path}: it has no header; expected {EXPECTED}")

    def batch(self, pieces):
        lines = [line.split(b",") for piece in pieces for line in piece]
        numbers = np.array(lines, dtype=object).astype(np.int64)
        first = 1 + self.model.dense_features
        self.malformed.rows += len(lines)
        return NumpyBatch(
            labels=numbers[:, 0].astype(np.float32),
            dense=dense_values(numbers[:, 1:first]),
            ids=numbers[:, first : first + len(self.table_rows)].T.reshape(-1),
            lengths=np.zeros(0, np.int32),
        )

    @staticmethod
    def write(path, model, synthetic, rows, progress=None):
        check_columns(model, path)
        made = Generator(model, synthetic).examples(np.arange(rows))
        columns = [made.labels.astype(int), *made.counts, *(bag.ids for bag in made.bags)]
        header = ",".join(["label", *(f"c{n}" for n in range(1, len(columns)))])
        np.savetxt(path, np.transpose(columns), "%d", ",", header=header, comments="")
''',
        ),
        Edit(
            "recsim_train/config/formats.py",
            """
    "csv": Format(
        name="CSV", reader="recsim_train.data.decimals:Decimals", ending=".csv", row="csv_row"
    ),""",
            "FORMATS: dict[str, Format] = {",
        ),
        Edit(
            "recsim_train/config/cluster.py",
            '\n    csv_row: Annotated[Price, Usual(3e-6)]\n    """One CSV row read."""',
            '    """Latency of one step of a ring collective, beyond its bytes and CPU time."""',
        ),
        Edit(
            "recsim_train/calibration/prices.py",
            '\n    "csv_row",',
            "READ_PRIORS = _usual(",
        ),
        *in_profiles("csv_row: {value: 3 us, uncertainty: 100 %, basis: magnitude}"),
    ],
    "Add a preset": [
        Edit(
            "recsim_train/config/presets.py",
            '''
    "scratch": Preset(
        summary="a preset of a test",
        batch_size=32,
        shape=Model(
            embedding_dim=8, bottom_mlp=(16, 8), top_mlp=(16, 1), tables=_tables((100, 50))
        ),
    ),''',
            "PRESETS: dict[str, Preset] = {",
        ),
    ],
    "Add an effect": [
        Edit(
            "recsim_train/strategy/effects.py",
            '''

@dataclass(slots=True, eq=False)
class Rest(Effect[None]):
    """Do nothing."""
''',
            '    """Seconds since the run started, on the clock of this world."""\n',
        ),
        Edit(
            "recsim_train/strategy/effects.py",
            "\n    Rest,",
            "EFFECTS: tuple[type[Effect[Any]], ...] = (",
        ),
        Edit(
            "recsim_train/sim/perform.py",
            '''

def _rest(at: Trainer, loop: LoopState, effect: effects.Rest) -> Steps:
    yield _own(at, loop, effect)
    return None, 0
''',
            "    return at.world.engine.now, 0\n",
        ),
        Edit(
            "recsim_train/sim/perform.py",
            "\n    effects.Rest: _rest,",
            "PERFORM: dict[type, Callable[..., Steps]] = {",
        ),
        Edit(
            "recsim_train/executor/runtime.py",
            "\n    effects.Rest: lambda _, __: (None, 0),",
            "PERFORM: dict[type, Callable[..., Done]] = {",
        ),
        Edit(
            "recsim_train/report/words.md",
            "\n| rest (`Rest`) | nothing |",
            "| part | meaning |\n|---|---|",
        ),
    ],
}  # fmt: skip


def test_there_is_a_recipe_for_each_kind_of_addition() -> None:
    assert {title for title in SECTIONS if title.startswith("Add ")} == set(RECIPES)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_the_files_that_it_takes(title: str) -> None:
    own = {edit.path for recipe in RECIPES.values() for edit in recipe if not edit.after}
    taken = {edit.path for edit in RECIPES[title]} - own
    text = SECTIONS[title]
    referred = [section for other, section in SECTIONS.items() if f'"{other}"' in text]
    assert taken <= named("".join([text, *referred]))


@pytest.mark.parametrize(
    ("title", "most"), [("Add an operation", 4), ("Add a price", 3), ("Add a data format", 4)]
)
def test_an_addition_takes_few_files_of_the_program(title: str, most: int) -> None:
    taken = {edit.path for edit in RECIPES[title]}
    if title == "Add a price":
        taken.add("recsim_train/workload/operations.py")  # the recipe of the operation uses it
    assert len({path for path in taken if path.startswith("recsim_train/")}) <= most


HELD = {
    "tests/conformance/test_worlds_agree.py": "scratch or every_",
    "tests/strategy/test_programs.py": "scratch",
    "tests/house/test_layering.py": "scratch or halfway or detour",
    "tests/docs/test_docs.py": "scratch or glossary or profile or all_strategies",
    "tests/config/test_model_forms.py": "scratch",
    "tests/calibrate/test_own_operations.py": "every_operation_has",
    "tests/calibrate/test_prices.py": "tells_all_kernel_prices or every_counted or rows_and_ids",
    "tests/data/test_formats.py": "csv",
}
"""Tests that a scratch copy with all additions must pass."""


@pytest.mark.slow
def test_recipes_that_are_followed_give_a_whole(tmp_path: Path) -> None:
    """The new strategy uses the new option, part, operation, price and effect, in both worlds."""
    for folder in ("recsim_train", "tests", "docs", "experiments", "cluster_profiles"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for path in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy2(path, tmp_path)
    for recipe in RECIPES.values():
        carry_out(recipe, tmp_path)
    chosen = " or ".join(dict.fromkeys(HELD.values()))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", chosen, *HELD],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=560, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    for path in HELD:
        assert re.search(rf"^{path}::\S+.* PASSED", done.stdout, re.MULTILINE), path


def carry_out(recipe: list[Edit], folder: Path) -> None:
    """Raises AssertionError where a file has no such place."""
    for edit in recipe:
        path = folder / edit.path
        if not edit.after:
            path.write_text(edit.text, encoding="utf-8")
            continue
        code = path.read_text(encoding="utf-8")
        before, place, behind = code.partition(edit.after)
        assert place, f"{edit.path} has no {edit.after!r}"
        path.write_text(before + place + edit.text + behind, encoding="utf-8")
