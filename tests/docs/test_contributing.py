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
    "data/text.py": ("def text_rows", "_criteo", "MARK"),
    "data/input.py": ("def text_of", "def layout_for"),
    "strategy/effects.py": ("class Synced", "EFFECTS", "COLLECTIVE", "LOCAL"),
    "strategy/driver.py": ("class Allowed",),
    "strategy/operations.py": ("def operation",),
    "workload/operations.py": ("OPS",),
    "executor/operations.py": ("KERNELS",),
    "sim/perform.py": ("GHOSTS", "PERFORM"),
    "executor/runtime.py": ("PERFORM",),
    "config/cluster.py": ("class Costs", "class Usual"),
    "calibration/prices.py": ("KERNEL_PRIORS",),
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
            "recsim_train/sim/perform.py",
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
    "Add a format of text": [
        Edit(
            "recsim_train/data/text.py",
            '''

def json_text(path: str) -> Text:
    """A file of JSON, an object a line, by its first line."""
    head, _ = beginning(path, "JSON, an object a line")
    return Text(path, "", tuple(json.loads(head.split(b"\\n", 1)[0])), 1)


def _json(text: Text) -> Iterator[pa.RecordBatch]:
    with open_bytes(text.path) as file:
        for line in file:
            mark, row = None, {}
            try:
                row = {name: str(value) for name, value in json.loads(line).items()}
            except ValueError as error:
                mark = f"no JSON ({error})"
            columns = [pa.array([row.get(name)], pa.utf8()) for name in text.names]
            marks = pa.array([mark], pa.utf8())
            yield pa.RecordBatch.from_arrays([*columns, marks], names=[*text.names, MARK])
''',
            '_SEPARATORS = ",\\t;|"\n',
        ),
        Edit(
            "recsim_train/data/text.py",
            """    if text.path.endswith(".jsonl"):
        yield from _json(text)
        return
""",
            'RunFailed where it cannot be read on.\n    """\n',
        ),
        Edit(
            "recsim_train/data/input.py",
            """    if path.endswith(".jsonl"):
        return text.json_text(path)
""",
            'or is neither."""\n',
        ),
        Edit(
            "recsim_train/data/input.py",
            "from recsim_train.data import text\n",
            "from recsim_train.config.experiment import Data, Model\n",
        ),
        Edit(
            "tests/docs/test_json_lines.py",
            '''"""A format of a test: rows are converted, read, and those that are none counted."""

from recsim_train.config.columns import Column
from recsim_train.config.experiment import Data, Model, Table
from recsim_train.data.convert import convert_text
from recsim_train.data.input import to_convert
from recsim_train.data.stream import open_stream


def test_lines_of_json_are_read(tmp_path):
    path = tmp_path / "log.jsonl"
    row = \'{"click": 1, "age": 3, "item": 4}\\n\'
    path.write_text(row * 5 + "no JSON\\n" + row)
    columns = (
        Column(name=("age",), type="numeric"),
        Column(name=("item",), type="categorical", num_buckets=9),
    )
    data = Data(path=(str(path),), label="click", columns=columns, eval_rows=0)
    data = data.with_({"malformed_limit": 0.5})
    model = Model(embedding_dim=4, dense_features=1, bottom_mlp=(4,), top_mlp=(1,),
                  tables=(Table(rows=10),))
    [(_, text, target)] = to_convert(data)
    assert convert_text(text, target) == 7
    assert not list(to_convert(data))
    stream = open_stream(
        model, data, batch_size=7, positions=[0], total=1, iterations=1, seed=1
    )
    batch = next(stream).batch
    assert batch.dense.tolist() == [[3.0]] * 7
    assert batch.ids.tolist() == [5] * 7
    assert stream.malformed.counts == {"mark": 1}
    assert "line 6: no JSON" in stream.malformed.describe()
''',
        ),
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
    ("title", "most"), [("Add an operation", 4), ("Add a price", 3), ("Add a format of text", 2)]
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
    "tests/docs/test_json_lines.py": "json_are_read",
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
