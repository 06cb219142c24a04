"""The document that says which runs belong to a claim; it lies beside the run directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recsim_train.config.claim import Claim
from recsim_train.config.dump import plain
from recsim_train.config.errors import UserError
from recsim_train.config.validate import parse
from recsim_train.results.folder import json_bytes, put, read_json, slug, writing

FORMAT = 2
_PREFIX = "claim-"


@dataclass(frozen=True, slots=True)
class Change:
    """One input of a claim, changed one way, and the runs that were made with it."""

    input: str
    change: str
    runs: Mapping[str, str]
    """Run ids by variant."""


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One point of a claim's grid and the runs that were made there."""

    at: Mapping[str, str]
    """Value by input, as the claim's file words them."""
    runs: Mapping[str, str]
    """Run ids by variant."""


@dataclass(frozen=True, slots=True)
class ClaimRuns:
    """A claim and its runs; names of run directories in the same folder."""

    name: str
    """The experiment's."""
    file: str
    """The experiment file as it was named."""
    claim: Claim
    runs: Mapping[str, str]
    """Run ids by variant."""
    changes: tuple[Change, ...] = ()
    points: tuple[GridPoint, ...] = ()
    folder: Path = Path()
    """Where the run directories lie."""

    @property
    def run_ids(self) -> set[str]:
        """All runs of the claim."""
        groups = [self.runs, *(c.runs for c in self.changes), *(p.runs for p in self.points)]
        return {run for runs in groups for run in runs.values()}


def write_claim_runs(out: Path, record: ClaimRuns) -> Path:
    """Write the document; an older one of the same experiment's name is replaced."""
    path = out / f"{_PREFIX}{slug(record.name, 'claim')}.json"
    content = {
        "tool": "recsim-train",
        "format": FORMAT,
        "name": record.name,
        "file": record.file,
        "claim": plain(record.claim, digits=None),
        "runs": dict(record.runs),
        "changes": [asdict(change) for change in record.changes],
        "points": [asdict(point) for point in record.points],
    }
    with writing(path):
        put(path, json_bytes(content))
    return path


def read_claim_runs(folder: Path) -> list[ClaimRuns]:
    """All claims whose runs lie in a folder, by file name. Raises UserError for damaged ones."""
    if not folder.is_dir():
        return []
    return [_read(path) for path in sorted(folder.glob(f"{_PREFIX}*.json"))]


def _read(path: Path) -> ClaimRuns:
    try:
        content: dict[str, Any] = read_json(path)
        if content["format"] != FORMAT:
            raise UserError(
                f"{path} was written in format {content['format']!r}, this version reads {FORMAT}"
            )
        return ClaimRuns(
            name=str(content["name"]),
            file=str(content["file"]),
            claim=parse(Claim, content["claim"]),
            runs=dict(content["runs"]),
            changes=tuple(Change(**change) for change in content["changes"]),
            points=tuple(GridPoint(**point) for point in content["points"]),
            folder=path.parent,
        )
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__}") from None
