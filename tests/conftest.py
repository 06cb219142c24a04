from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    name = "tests_run_factory"
    if name not in sys.modules:
        path = Path(__file__).parent / "results" / "run_factory.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def factory() -> ModuleType:
    """Plans, outcomes and run directories."""
    return _load()
