"""The parts that all commands share: options, exit codes, messages."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from recsim_train.cli import output, progress
from recsim_train.config.errors import RunFailed, UserError, harmless

if TYPE_CHECKING:
    from recsim_train.session.job import Caller

P = ParamSpec("P")

FAILED, BAD_INPUT, GATE_FAILED = 1, 2, 3


def path_of(text: str | Path) -> Path:
    """A path that was given; empty text is a variable that was not set, not the current folder."""
    if not str(text).strip():
        raise typer.BadParameter("expected a path, got empty text")
    return Path(text)


ExperimentArgument = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT", help="Experiment YAML.", parser=path_of)
]


def _profile_name(name: str | None) -> str | None:
    """An empty name is a variable that was not set, not a wish for the experiment's profile."""
    if name is not None and not name.strip():
        from recsim_train.config.profiles import NO_PROFILE_NAME

        raise typer.BadParameter(NO_PROFILE_NAME)
    return name


def count(text: str) -> float:
    """A number of examples as people write it: 4500000, 4.5e6, 4.5M."""
    if (number := above_zero(text, "such as 5000000 or 5M")) < 1.0:
        raise typer.BadParameter(f"expected a number such as 5000000 or 5M, got {text!r}")
    return number


def above_zero(text: str, wanted: str = "above 0") -> float:
    """A number of epochs: 3, 0.5."""
    from recsim_train.config.tables import rows_of

    try:
        number = float(rows_of(text))  # type: ignore[arg-type]
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise typer.BadParameter(f"expected a number {wanted}, got {text!r}")
    return number


def settings(given: list[str] | None) -> list[str] | None:
    """Bytes of a command line that are no text cannot be written down again."""
    for word in given or ():
        if any("\udc80" <= character <= "\udcff" for character in word):
            encoding = sys.getfilesystemencoding()
            raise typer.BadParameter(f"{word!a} is no text in this terminal's encoding, {encoding}")
    return given


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="PROFILE",
        help="Cluster profile: a file or a name.",
        callback=_profile_name,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one setting; may be repeated. x1.25: so many times what it is; * in a key: "
        "each entry.",
        callback=settings,
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Seed; overrides the YAML.")]
OutOption = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Where run directories go.", parser=path_of),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; all else goes to stderr.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, print the plan, start nothing.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Keep complete runs of this code, do the others.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Processes that simulate a sweep's points; default: one per core."
    ),
]


say = progress.say


def examples(*typed: str) -> str:
    """What a command's help ends with; lines are kept as they are."""
    lines = [f"  recsim-train {words}" for words in typed]
    return "\n".join(["\b", "Examples:", *lines])


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn failures into one message and an exit code: never a traceback for the user's input."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        progress.HEARD[0] = time.monotonic()
        try:
            command(*args, **kwargs)
        except UserError as error:
            say(f"error: {error}")
            raise typer.Exit(BAD_INPUT) from None
        except RunFailed as error:
            say(f"failed: {error}")
            raise typer.Exit(FAILED) from None
        except BrokenPipeError:
            raise  # nobody reads our output any more, see `recsim_train.__main__`
        except OSError as error:
            say(f"failed: {output.unable(error)}")
            raise typer.Exit(FAILED) from None
        except MemoryError as error:
            say(f"failed: there is not enough memory{f': {error}' if str(error) else ''}")
            raise typer.Exit(FAILED) from None
        except EOFError as error:  # of which typer would make "Aborted!"
            raise RuntimeError("something ended early") from error

    return run


def tell(text: str) -> None:
    """An answer, on standard output."""
    print(harmless(text))


def print_json(document: object) -> None:
    """One document on standard output."""
    print(json.dumps(document, indent=2, allow_nan=False))


def caller(log: Path | None = None) -> Caller:
    """Who asks: the person at this terminal, by this command line. ``log``: as of `Caller`."""
    from recsim_train.session.job import Caller

    if log is not None:
        from recsim_train.results.folder import writable

        writable(log.parent, log.name)
    return Caller(say, progress.progress_bar, ("recsim-train", *sys.argv[1:]), log)
