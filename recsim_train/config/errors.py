"""The two ways in which a command may fail for a reason its user can act on."""

from __future__ import annotations


class UserError(Exception):
    """The input is wrong and that was known before anything started: exit code 2."""


class NoHostError(UserError):
    """The cluster profile has no host left for one of the plan's processes."""


class RunFailed(Exception):  # noqa: N818 - reads as what happened
    """Something went wrong in the middle; what was finished is kept: exit code 1."""


_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)
}


def harmless(text: str) -> str:
    """Text as a terminal shows it: what it would obey, such as an escape sequence in a name, is
    written out."""
    return text.translate(_CONTROLS)
