"""Every notebook runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_the_notebook_runs(path: Path) -> None:
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=240, resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "signed error" in printed
    shown = [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code" and cell.source.endswith(".plot()")
        for output in cell.outputs
    ]
    assert len(shown) == {"predict_and_run": 2}.get(path.stem, 0)
    assert all(data["image/svg+xml"].startswith("<?xml") for data in shown)
