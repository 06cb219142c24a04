"""The files of a report: Markdown, one HTML page, figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from recsim_train.config.errors import RunFailed
from recsim_train.report.document import Document, Picture
from recsim_train.report.html import page
from recsim_train.report.markdown import markdown
from recsim_train.results.folder import put


def publish(
    out: Path,
    report: Document,
    pictures: Mapping[str, Picture],
    short: str,
    more: Mapping[str, bytes] | None = None,
) -> None:
    """Write figures/, the Markdown file ``short``, report.html and ``more`` files by name into an
    existing folder. Raises RunFailed if the disk does not take them."""
    try:
        (out / "figures").mkdir(exist_ok=True)
        for picture in pictures.values():
            put(out / "figures" / f"{picture.name}.svg", picture.svg.encode("utf-8"))
            put(out / "figures" / f"{picture.name}.png", picture.png)
        for name, content in (more or {}).items():
            put(out / name, content)
        put(out / short, markdown(report).encode("utf-8"))
        put(out / "report.html", page(report).encode("utf-8"))
    except OSError as error:
        raise unwritable(out, error) from None


def unwritable(out: Path, error: OSError) -> RunFailed:
    """What is raised where the disk does not take a report."""
    return RunFailed(f"{out}: the report could not be written: {error.strerror}")
