"""Where processes of a run leave what outlasts them: why they end, what they have measured.

What is put under a key is there whole or not at all. Imports no torch: the launcher reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_CHUNK = 4 << 20
"""Bytes of a store's value: it takes less than 8 MiB."""
_MOST = 1000
"""Values of one content."""


class Board(Protocol):
    """Of one run."""

    def put(self, key: str, content: bytes) -> None:
        """Leave something."""

    def get(self, key: str) -> bytes | None:
        """What was left under a key; None: nothing."""


class FolderBoard:
    """In a folder that all processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, key: str, content: bytes) -> None:
        """As of `Board`."""
        temporary = self._folder / f"{key}.{os.getpid()}"
        temporary.write_bytes(content)
        temporary.replace(self._folder / key)

    def get(self, key: str) -> bytes | None:
        """As of `Board`."""
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None


class StoreBoard:
    """In the store of ranks: whoever reaches that could leave anything there."""

    def __init__(self, store: Callable[[], Store]) -> None:
        """``store``: which one it is by now."""
        self._store = store

    def put(self, key: str, content: bytes) -> None:
        """As of `Board`. Raises RuntimeError where the store is gone."""
        store, chunks = self._store(), range(0, len(content), _CHUNK)
        for number, at in enumerate(chunks):
            store.set(f"{key}/{number}", content[at : at + _CHUNK])  # type: ignore[arg-type]
        store.set(key, str(len(chunks)))

    def get(self, key: str) -> bytes | None:
        """As of `Board`; None, too, for what nobody who puts has left. Raises as `put`."""
        store = self._store()
        if not store.check([key]):
            return None
        said = store.get(key)
        if not (said.isdigit() and len(said) < 6 and 0 < int(said) <= _MOST):
            return None
        keys = [f"{key}/{number}" for number in range(int(said))]
        return b"".join(store.multi_get(keys)) if store.check(keys) else None
