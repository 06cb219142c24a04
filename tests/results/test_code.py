"""Which code made a result: a digest of the package's sources, and of strategies from elsewhere."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recsim_train.config.experiment import StrategyChoice
from recsim_train.results import environment
from recsim_train.results.environment import code_of
from recsim_train.strategy import parts, registry

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
        forget()
        return code_of()

    written("__init__.py", "")
    yield written
    forget()


def forget() -> None:
    """The sources may have changed."""
    environment.sources.cache_clear()
    environment._own.cache_clear()


def test_names_and_contents_of_all_sources_say_which_code_it_is(
    write: Write, tmp_path: Path
) -> None:
    first = write("sim/run.py", "a = 1\n")
    assert len(first) == 12
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


def test_another_version_of_a_library_is_other_code(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write("run.py", "")
    monkeypatch.setattr(environment, "versions", lambda: {"torch": "1.0"})
    assert write("run.py", "") != first


STRATEGY = """
from dataclasses import dataclass
from recsim_train.strategy.allreduce import AllReduceSGD
from recsim_train.strategy.compression import Compression, NoCompression
from recsim_train.strategy.parts import part

@dataclass
class Mine(AllReduceSGD):
    kind = "mine"
    summary = "{summary}"
    squeeze: Compression = part(NoCompression, help="how")
"""
PART = """
from dataclasses import dataclass
from recsim_train.strategy.compression import NoCompression

@dataclass
class Squeeze(NoCompression):
    kind = "squeeze"
    summary = "{summary}"
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that Python imports from; classes of it are registered, and forgotten in the end."""
    monkeypatch.syspath_prepend(tmp_path)
    strategies, made = dict(registry._registered), dict(parts._registered)
    yield tmp_path
    for known, before in ((registry._registered, strategies), (parts._registered, made)):
        known.clear()
        known.update(before)  # type: ignore[call-overload]
    for name in ("mine", "base", "own_package.mine", "own_package.help", "own_package", "squeeze"):
        sys.modules.pop(name, None)


def imported(name: str) -> None:
    """As a process that begins now would."""
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    if hasattr(module, "Mine"):
        registry.forget(module.Mine)
        registry.register(module.Mine)
    else:
        parts._registered.pop(("compression", "squeeze"), None)
        parts.register_part(module.Squeeze)


def of(**options: object) -> str:
    return code_of([StrategyChoice(kind="mine", options=options)])


def test_a_strategy_of_a_file_of_its_own_is_code_too(elsewhere: Path) -> None:
    file, found = elsewhere / "mine.py", []
    for summary in ("one", "three", "one"):
        file.write_text(STRATEGY.format(summary=summary))
        imported("mine")
        found.append(of())
    assert found[0] == found[2] != found[1]
    assert found[0] != code_of()
    (elsewhere / "another.py").write_text("x = 1\n")  # stands beside it, and is nobody's
    imported("mine")
    assert of() == found[0]
    # one that does not use it is as it was
    assert code_of([StrategyChoice(kind="flat_ps", options={})]) == code_of()


def test_all_files_of_a_strategys_package_count(elsewhere: Path) -> None:
    package, found = elsewhere / "own_package", []
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(STRATEGY.format(summary="one"))
    for file in (package / "help.py", package / "deep/more.py"):
        file.parent.mkdir(exist_ok=True)
        found.clear()
        for content in ("x = 1\n", "x = 22\n", "x = 1\n"):
            file.write_text(content)
            imported("own_package.mine")
            found.append(of())
        assert found[0] == found[2] != found[1]


def test_what_a_strategy_derives_from_is_code_too(elsewhere: Path) -> None:
    derived = (
        "from dataclasses import dataclass\nimport base\n\n@dataclass\nclass Mine(base.Mine):\n"
    )
    (elsewhere / "mine.py").write_text(f'{derived}    summary = "as that"\n')
    found = []
    for summary in ("one", "three", "one"):
        (elsewhere / "base.py").write_text(STRATEGY.format(summary=summary))
        sys.modules.pop("base", None)
        imported("mine")
        found.append(of())
    assert found[0] == found[2] != found[1]


def test_a_part_from_elsewhere_counts_where_it_is_chosen(elsewhere: Path) -> None:
    (elsewhere / "mine.py").write_text(STRATEGY.format(summary="one"))
    imported("mine")
    found = []
    for summary in ("one", "three"):
        (elsewhere / "squeeze.py").write_text(PART.format(summary=summary))
        imported("squeeze")
        found.append((of(squeeze={"kind": "squeeze"}), of()))
    (first, without), (other, also_without) = found
    assert first != other
    assert without == also_without
    assert without not in (first, other)


def test_a_class_of_a_notebook_is_the_one_of_before_only_in_its_process(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = types.ModuleType("notebook_without_a_file")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    exec(STRATEGY.format(summary="one"), vars(notebook))
    registry.register(notebook.Mine)
    first = of()
    assert of() == first
    environment._elsewhere.cache_clear()
    monkeypatch.setattr(environment.os, "getpid", lambda: 1)
    assert of() != first
