"""How much code there is: files, lines and statements of each room, beside those of a commit.

    python benchmarks/weight.py [--against COMMIT]

Statements are nodes `ast.stmt`, of the package and of benchmarks/ together, so that moving code
from one to the other saves nothing; imports and docstrings count, blank lines and comments do not.
"""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from script import options

ROOT = Path(__file__).resolve().parent.parent
COUNTED = ("recsim_train", "benchmarks")
Weight = dict[str, Counter[str]]


def weight(files: Iterable[tuple[str, str]]) -> Weight:
    """By room. ``files``: (path within the project, text)."""
    rooms: Weight = {}
    for path, text in files:
        top, *inner = path.split("/")
        room = rooms.setdefault("/".join([top, *inner[:-1][:1]]), Counter())
        statements = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
        room.update(files=1, lines=text.count("\n"), statements=statements)
    return rooms


def here() -> Iterable[tuple[str, str]]:
    """Files of the working tree."""
    for top in COUNTED:
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def at(commit: str) -> Iterable[tuple[str, str]]:
    """Files of a commit."""
    packed = subprocess.run(
        ["git", "archive", commit, *COUNTED], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and member.name.endswith(".py"):
                yield member.name, content.read().decode()


def main() -> None:
    against = options(__doc__, {"--against": {"metavar": "COMMIT"}}).against
    now, before = weight(here()), weight(at(against)) if against else {}
    print(f"{'room':26} {'files':>13} {'lines':>15} {'statements':>15}")
    for room in [*sorted({*now, *before}), "together"]:
        cells = []
        for name in ("files", "lines", "statements"):
            count, was = (
                sum(rooms[name] for rooms in side.values())
                if room == "together"
                else side.get(room, Counter())[name]
                for side in (now, before)
            )
            cells.append(f"{count:,}" + (f" ({count - was:+,})" if against else ""))
        print(f"{room:26} {cells[0]:>13} {cells[1]:>15} {cells[2]:>15}")


if __name__ == "__main__":
    main()
