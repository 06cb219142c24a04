"""Imports point one way: cli -> worlds and report -> contracts -> config."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "recsim_train"

MIDDLE = {"strategy", "placement", "workload", "data", "trace", "results"}
ALLOWED = {
    "config": set[str](),
    "strategy": set[str](),
    "trace": {"config"},
    "workload": {"config"},
    "placement": {"config", "strategy", "workload"},
    "data": {"config", "placement", "workload"},
    "results": {"config", "placement", "trace", "strategy"},
    "sim": {"config", *MIDDLE},
    "executor": {"config", *MIDDLE},
    "report": {"config", *MIDDLE},
    "calibrate": {"config", "executor", *MIDDLE},
}
ONLY_IN = {
    "simpy": {"sim/kernel.py"},
    "numba": {"sim/fluid/layout.py"},
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
        "sim",
        "report",
        "cli",
    },
    "simpy": {"executor", "strategy", "calibrate"},
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


@pytest.mark.parametrize(
    "name",
    [
        "flat_ps",
        "allreduce",
        "shadowsync",
        "scalefreectr",
        "des",
        "hierarchical",
        "steps",
        "net",
        "compression",
        "parts",
        "options",
    ],
)
def test_strategies_import_only_the_standard_library_and_their_own_vocabulary(name: str) -> None:
    for imported in imports(PACKAGE / "strategy" / f"{name}.py"):
        top = imported.split(".")[0]
        assert top in STANDARD or imported.startswith("recsim_train.strategy"), imported


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_help_imports_no_heavy_library() -> None:
    loaded = modules_after(
        "import contextlib, sys\n"
        "sys.argv = ['recsim-train', '--help']\n"
        "from recsim_train.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main()"
    )
    heavy = {"torch", "pandas", "matplotlib", "numpy", "pyarrow", "simpy", "scipy", "pydantic"}
    assert not heavy & loaded


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "__main__.py"], ids=lambda p: p.stem
)
def test_modules_stay_small_enough_to_hold_in_the_head(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
