"""The code that predicts and measures: its commit, or a digest of its sources."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recsim_train.results import environment
from recsim_train.results.environment import code_revision

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file of a package of its own; answers what the code is then."""
    package = tmp_path / "package"
    monkeypatch.setattr(environment, "_PACKAGE", package)

    def written(name: str, content: str) -> str:
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        environment._sources_digest.cache_clear()
        return code_revision()

    written("__init__.py", "")
    yield written
    environment._sources_digest.cache_clear()


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    done = subprocess.run(["git", *own, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_without_git_the_sources_say_which_code_it_is(write: Write, tmp_path: Path) -> None:
    first = write("sim/run.py", "a = 1\n")
    assert first.startswith("sources-")
    assert len(first) == len("sources-") + 12
    other = write("sim/run.py", "a = 2\n")
    assert other != first
    assert write("sim/run.py", "a = 1\n") == first
    # what is not Python's counts, too: the page's template; what Python makes of sources does not
    assert write("sim/__pycache__/run.pyc", "x") == first
    assert write("report/page.html.j2", "x") != first
    (tmp_path / "package/report/page.html.j2").unlink()
    # the same content under another name is other code
    (tmp_path / "package/sim/run.py").rename(tmp_path / "package/sim/runs.py")
    assert write("__init__.py", "") not in (first, other)


def test_with_git_it_is_the_commit_and_more_where_files_differ(
    write: Write, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert write("__init__.py", "") == commit
    one, two = write("__init__.py", "a = 1\n"), write("__init__.py", "a = 2\n")
    assert one.startswith(f"{commit}-modified-")
    assert one != two
    assert write("__init__.py", "") == commit
