"""One file makes simulations, one table says how much an answer costs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "recsim_train"
LEVELS = "evaluate/levels.py"
LENGTHS = {
    "precision", "minimum_steps", "minimum_iterations", "fold_above", "what_if_steps",
    "what_if_trainers", "steps", "warmup_steps", "max_spans", "threads", "trainers", "racks",
}  # fmt: skip
"""What says how long a case is simulated, and how many of it."""
NO_LENGTH = {
    "STEP": "how much more of an input is asked",
    "_SPARE": "columns of the design that tell its error",
    "_SIZES": "designs that there are",
    "_COARSE": "from which error on a sentence says so",
    "_SOLVED": "seconds of an iteration, measured",
    "_REPLAYED": "seconds of an id, measured",
    "_REMEMBERED": "ids that are kept in memory",
    "_JITTER": "what is asked of one machine",
    "_PASSING": "what is asked of hosts of their own",
}
"""Other numbers of the room, and what they are."""


def trees(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not rooms or name.startswith(rooms):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("name", ["SimulatedRun", "Steady"])
def test_one_file_makes_them(name: str) -> None:
    assert [file for file, tree in trees() if calls(tree, name)] == ["evaluate/simulations.py"]


def number(node: ast.expr | None) -> bool:
    """Whether it is a number that somebody chose."""
    if isinstance(node, ast.Tuple):
        return any(map(number, node.elts))
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float)


def lengths(tree: ast.Module) -> Iterator[str]:
    """Settings of how long a case is simulated that get a number, by keyword or by dotted key."""
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg or "", word.value) for word in node.keywords]
        elif isinstance(node, ast.Dict):
            keys = [k.value if isinstance(k, ast.Constant) else "" for k in node.keys]
            pairs = list(zip(map(str, keys), node.values, strict=True))
        for key, value in pairs:
            if key.rpartition(".")[2] in LENGTHS and number(value):
                yield f"{key}={ast.unparse(value)}"


def test_no_other_file_says_how_long_or_how_many() -> None:
    """Of calibration's own programs, which are measured, it is their own; 0 is none."""
    rooms = ("evaluate/", "session/", "sweep/", "validation/", "designs/", "calls/", "cli/", "sim/")
    found = {
        file: said
        for file, tree in trees(*rooms)
        if file != LEVELS and (said := [s for s in lengths(tree) if not s.endswith("=0")])
    }
    # one iteration of one trainer costs the least work that there is: it is no simulation
    assert found == {"validation/configurations.py": ["roles.trainers=1", "training.steps=1"]}


def test_the_room_has_no_other_numbers_on_its_own() -> None:
    found = {
        target.id
        for file, tree in trees("evaluate/")
        if file != LEVELS
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and number(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    assert found <= set(NO_LENGTH)
    assert "_SOLVED" in found


def test_settings_are_changed_by_overrides() -> None:
    """`recsim_train.config.units`; what is made for the first time is made field by field."""
    copies = [
        ast.unparse(node)
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "model_copy"
    ]
    assert len(copies) <= 35
