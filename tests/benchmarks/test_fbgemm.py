"""benchmarks/fbgemm.py where there is no fbgemm: one sentence, nothing measured or written."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.clock import LIMIT

TREE = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("fbgemm_gpu") is not None, reason="fbgemm is here")
def test_without_fbgemm_there_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(TREE / "benchmarks" / "fbgemm.py"), "--out", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=True, cwd=TREE
    )
    assert done.stdout == f"fbgemm is skipped: {sys.executable} does not have fbgemm-gpu-cpu.\n"
    assert not list(tmp_path.iterdir())
