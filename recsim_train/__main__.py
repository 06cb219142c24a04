"""``recsim-train`` and ``python -m recsim_train``: signals first, then everything heavy."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from contextlib import suppress

from recsim_train import signals
from recsim_train.cli import output
from recsim_train.config.errors import harmless

RESUMABLE = ("recommend", "run", "simulate", "validate")
_STDERR = 2


def main() -> None:
    """Entry point of the console script.

    Exit codes above 128 are a shell's: 128 and the signal that ended, or would have ended, us.
    """
    signals.listen()
    output.prepare()
    try:
        if sys.stdout is None:
            sys.exit(f"failed: {output.CLOSED}")
        try:
            from recsim_train.cli.main import main as command_line

            command_line()
        finally:
            sys.stdout.flush()
    except BaseException as end:
        # Of an interrupt, a library that is being imported may make any other error.
        expected = isinstance(end, KeyboardInterrupt | SystemExit | BrokenPipeError)
        if not expected and signals.received() is None:
            sys.exit(_failed(end))
        sys.exit(_ended(end))
    finally:
        _let_go()
        signals.stop_listening()


def _let_go() -> None:
    """Of messages that nobody could be told: Python would try again in the end, and make an exit
    code of it."""
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)


def _ended(end: BaseException) -> int | str | None:
    """The exit code; says how to go on."""
    number = signals.received()
    if number is not None or isinstance(end, KeyboardInterrupt):
        command = ["recsim-train", *sys.argv[1:]]
        again = "go on" if signals.finished() else "begin again"
        if signals.finished() and "--resume" not in command:
            command.append("--resume")
        alone = "RANK" not in os.environ  # one of torchrun's processes cannot go on by itself
        goes_on = alone and command[1:2] and command[1] in RESUMABLE
        how = f"; to {again}: {shlex.join(command)}" if goes_on else ""
        with suppress(OSError):
            print(f"interrupted{harmless(how)}", file=sys.stderr, flush=True)
        return 128 + (number or signal.SIGINT)
    if _broken_pipe(end):
        # The reader of our output has gone (`| head`): nobody is left to tell.
        output.drop()
        return 128 + signal.SIGPIPE
    return end.code if isinstance(end, SystemExit) else 1


def _failed(end: BaseException) -> int:
    """The exit code; says what went wrong."""
    said = output.unable(end) if isinstance(end, OSError) else output.fault(end)
    with suppress(OSError):
        print(f"failed: {harmless(said)}", file=sys.stderr, flush=True)
    return 1


def _broken_pipe(end: BaseException | None) -> bool:
    """Whether that is what it came from: typer makes an exit code 1 of it."""
    while end is not None and not isinstance(end, BrokenPipeError):
        end = end.__context__
    return end is not None


if __name__ == "__main__":
    main()
