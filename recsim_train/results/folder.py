"""Folders that results go into."""

from __future__ import annotations

import os
from pathlib import Path

from recsim_train.config.errors import UserError


def writable(folder: Path) -> None:
    """Make a folder, parents too. Raises UserError where it can not be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: can not be used as a folder: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: no permission to write there")
