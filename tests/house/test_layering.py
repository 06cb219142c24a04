"""Imports point one way: cli -> calls -> sweep, designs, validation -> session -> evaluate ..."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clock import LIMIT

PACKAGE = Path(__file__).parents[2] / "recsim_train"

MIDDLE = {"strategy", "placement", "workload", "data", "trace", "results", "checkpoints"}
ALLOWED = {
    "config": set[str](),
    "strategy": {"config"},
    "trace": {"config"},
    "workload": {"config", "trace"},
    "placement": {"config", "strategy", "workload"},
    "data": {"config", "placement", "trace", "workload"},
    "results": {"config", "placement", "trace", "strategy"},
    "checkpoints": {"config", "data", "placement", "results", "workload"},
    "sim": {"config", *MIDDLE},
    "executor": {"config", *MIDDLE},
    "report": {"config", *MIDDLE},
    "calibration": {"config", "executor", *MIDDLE},
    "evaluate": {"config", "report", "sim", *MIDDLE},
    "session": {"config", "evaluate", "sim", "executor", "calibration", "report", *MIDDLE},
    "sweep": {"config", "evaluate", "report", "session", *MIDDLE},
    "designs": {"config", "evaluate", "report", "session", "sim", *MIDDLE},
    "validation": {"config", "evaluate", "executor", "calibration", "report", "session", *MIDDLE},
    "calls": {"config", "designs", "executor", "report", "session", "sweep", *MIDDLE},
}
ONLY_IN = {
    "simpy": {"sim/engine.py"},
    "numba": {"compiled.py", "sim/fluid/layout.py"},
    "yaml": {"config/"},
}
NEVER_IN = {
    "torch": {
        "strategy",
        "config",
        "placement",
        "workload",
        "data",
        "trace",
        "results",
        "checkpoints",
        "sim",
        "report",
        "evaluate",
        "session",
        "sweep",
        "designs",
        "validation",
        "calls",
        "cli",
    },
    "simpy": {"executor", "strategy", "calibration"},
    "pydantic": {"strategy"},
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    room = relative.parts[0] if len(relative.parts) > 1 else "cli"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "recsim_train" and len(parts) > 1 and room != "cli":
            target = parts[1]
            if target in ALLOWED or target == "cli":
                assert target == room or target in ALLOWED[room], f"{relative} imports {name}"
        for library, rooms in NEVER_IN.items():
            if parts[0] == library:
                assert room not in rooms, f"{relative} imports {library}"
        for library, places in ONLY_IN.items():
            if parts[0] == library:
                assert any(str(relative).startswith(p) for p in places), f"{relative}: {library}"


STANDARD = sys.stdlib_module_names


BESIDE_STRATEGIES = {"driver.py", "blame.py", "options.py", "registry.py"}
"""Of the room of strategies what none of them imports: it raises the errors of runs, and gives
their settings the form that the configuration checks."""


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if p.parent.name == "strategy" and p.name not in BESIDE_STRATEGIES],
    ids=lambda p: p.stem,
)
def test_strategies_import_only_the_standard_library_and_their_own_vocabulary(path: Path) -> None:
    for imported in imports(path):
        top = imported.split(".")[0]
        assert top in STANDARD or imported.startswith("recsim_train.strategy"), imported
        assert f"{imported.rpartition('.')[2]}.py" not in BESIDE_STRATEGIES, imported


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return set(done.stdout.split())


HEAVY = {"torch", "pandas", "matplotlib", "numpy", "pyarrow", "simpy", "scipy", "pydantic"}


def test_help_imports_no_heavy_library() -> None:
    loaded = modules_after(
        "import contextlib, sys\n"
        "sys.argv = ['recsim-train', '--help']\n"
        "from recsim_train.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main()"
    )
    assert not HEAVY & loaded


def test_importing_the_package_imports_no_heavy_library() -> None:
    loaded = modules_after("import recsim_train; assert 'predict' in dir(recsim_train)")
    assert not HEAVY & loaded
    assert "recsim_train.calls" not in loaded
    # the calls themselves need checked settings, but neither world until one is asked
    loaded = modules_after("import recsim_train; recsim_train.load, recsim_train.measure")
    assert not (HEAVY - {"pydantic"}) & loaded


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "__main__.py"], ids=lambda p: p.stem
)
def test_modules_stay_small_enough_to_hold_in_the_head(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, however indirectly (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            place = stack.index(name)
            group, stack[place:] = stack[place:], []
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_no_module_imports_itself_by_a_detour() -> None:
    """Imports within functions and those for types only count too."""
    known = {module_of(path): path for path in FILES}
    graph = {
        name: {other for other in imports(path) if other in known and other != name}
        for name, path in known.items()
    }
    for name, path in known.items():  # a package's own file is no detour
        if path.name == "__init__.py":
            graph[name] = {other for other in graph[name] if not other.startswith(f"{name}.")}
    assert circles(graph) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]
