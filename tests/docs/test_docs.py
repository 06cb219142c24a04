"""The documents say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import recsim_train
import recsim_train.calls
from recsim_train.config.load import load_points
from recsim_train.config.profiles import load_cluster
from recsim_train.config.schema import settings_table
from recsim_train.evaluate.levels import BUSY
from recsim_train.report.naming import words_page
from recsim_train.strategy.effects import EFFECTS
from recsim_train.strategy.registry import schemas, strategies
from tests.docs.manual import EVERYWHERE
from tests.modules import loaded

ROOT = Path(__file__).parents[2]
PROFILES = sorted(p for p in (ROOT / "cluster_profiles").glob("*.yaml") if p.stem != "local")


def test_the_reference_is_up_to_date() -> None:
    pages = loaded(ROOT / "docs" / "make_reference.py").build()
    assert len(pages) == 4
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, "run: python docs/make_reference.py"


def test_from_how_many_requests_on_few_stand_for_many_is_one_number() -> None:
    """Which the code, two settings' help and a page say."""
    help_of = {row.name: row.meaning for row in settings_table()}
    said = [
        help_of["simulation.fold_above"],
        help_of["simulation.minimum_iterations"],
        (ROOT / "docs" / "explain" / "scale.md").read_text(encoding="utf-8"),
    ]
    for text in said:
        (number,) = re.findall(r"more than ([\d,]+) requests in a step", text, re.IGNORECASE)
        assert int(number.replace(",", "")) == BUSY


def test_the_number_of_calls_is_said_alike() -> None:
    notebook = (ROOT / "notebooks" / "predict_and_run.ipynb").read_text(encoding="utf-8")
    word = {5: "five", 6: "six", 7: "seven"}[len(recsim_train.__all__)]
    for text in (notebook, recsim_train.__doc__, recsim_train.calls.__doc__):
        assert re.findall(r"\b(\w+) calls\b", text or "", re.IGNORECASE)[0].lower() == word


def test_every_swept_setting_is_documented() -> None:
    names = {row.name for row in settings_table()}
    wanted = {
        "roles.trainers", "roles.embedding_servers", "roles.dense_servers", "training.batch_size",
        "training.threads", "training.steps", "training.warmup_steps", "strategy", "data.path",
    }  # fmt: skip
    assert wanted <= names


def test_the_glossary_names_every_effect() -> None:
    glossary = words_page()
    for effect in EFFECTS:
        assert f"`{effect.__name__}`" in glossary


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").rglob("*.yaml")), ids=lambda p: p.stem
)
def test_every_experiment_loads(path: Path) -> None:
    assert load_points(path, [], schemas())[0].experiment.strategies


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_every_profile_loads_and_says_where_it_comes_from(path: Path) -> None:
    cluster = load_cluster(str(path), None)
    assert cluster.description or cluster.calibration


QUICKSTART = ROOT / "experiments" / "quickstart.yaml"


@pytest.mark.parametrize(
    "override",
    [
        "roles.trainers=3", "roles.embedding_servers=0", "roles.dense_servers=2", "roles.readers=1",
        "training.batch_size=64", "training.threads=1", "training.steps=7",
        "training.warmup_steps=0", "strategy=flat_ps", "strategy=allreduce",
        "strategy=[flat_ps, allreduce]", "strategy.mode=easgd", "data.path=other.tsv",
    ],
)  # fmt: skip
def test_the_quickstart_accepts_every_swept_setting(override: str) -> None:
    loaded = load_points(QUICKSTART, [override], schemas())[0]
    assert loaded.experiment != load_points(QUICKSTART, [], schemas())[0].experiment or (
        override in {"strategy=flat_ps"}
    )


def strategies_in(text: str) -> list[str]:
    """Every strategy that a page writes as ``{kind: ...}``."""
    found, kinds = [], "|".join(strategies())
    for start in re.finditer(rf"\{{kind: (?:{kinds})\b", text):
        depth = 0
        for at in range(start.start(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 0:
                found.append(text[start.start() : at + 1])
                break
    return found


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda p: p.name)
def test_strategies_on_a_page_can_be_chosen(page: Path) -> None:
    for written in strategies_in(page.read_text(encoding="utf-8")):
        if "..." not in written and "N" not in re.findall(r"\w+", written):
            load_points(QUICKSTART, [f"strategy={written}"], schemas())[0]


def test_strategies_on_a_page_are_found() -> None:
    assert strategies_in("`{kind: flat_ps, compression: {kind: dct}}` {kind: ma}") == [
        "{kind: flat_ps, compression: {kind: dct}}"
    ]


OURS = [k for k, made in strategies().items() if made.__module__.startswith("recsim_train.")]


@pytest.mark.parametrize("kind", OURS)
def test_every_strategy_is_described_shown_and_compared(kind: str) -> None:
    readme, text = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/reference/strategies.md")
    )
    assert f"\n| `{kind}` | " in readme
    assert re.search(rf"`(strategy: )?{kind}`", text)
    shown = load_points(ROOT / "experiments" / "all_strategies.yaml", [], schemas())[0]
    assert kind in {choice.kind for choice in shown.experiment.strategies}
    tests = (ROOT / "tests" / "conformance").glob("test_*.py")
    assert any(f'"{kind}"' in path.read_text(encoding="utf-8") for path in tests)
