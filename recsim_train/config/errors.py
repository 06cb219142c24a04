"""The two ways in which a command may fail for a reason its user can act on."""

from __future__ import annotations


class UserError(Exception):
    """The input is wrong and that was known before anything started: exit code 2."""


class NoHostError(UserError):
    """The cluster profile has no host left for one of the plan's processes."""


class RunFailed(Exception):  # noqa: N818 - reads as what happened
    """Something went wrong in the middle; what was finished is kept: exit code 1."""
