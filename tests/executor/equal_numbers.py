"""A server and a client that have equal process numbers, each in a process namespace of its own.

``python -m tests.executor.equal_numbers server FILE FOLDER`` holds FILE open, under many numbers,
as one that reads its data does; ``... client FILE FOLDER`` sends it a request. FOLDER is where they
meet and leave what they know.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from recsim_train.executor.link import connections
from recsim_train.executor.link.connections import ClientListener, connect
from tests.clock import until

TOKEN = b"t" * connections.TOKEN_BYTES
HEAD = 24
LIMIT = 60.0
NUMBERS = range(3, 64)
"""Of open files, the client's own among them."""
CONTENT = bytes(range(256)) * 4096


def server(file: Path, folder: Path) -> None:
    """Takes one request, and leaves what it has seen of it and of memory."""
    held = os.open(file, os.O_RDONLY)
    for number in NUMBERS:
        if number != held:
            os.dup2(held, number)
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    left(folder, "address", listener.address)
    answerer = listener.client(7)
    answerer.next()
    right, shared = bytes(answerer.payload()) == CONTENT, answerer._shared
    if shared is not None:
        shared.answers.put([memoryview(CONTENT)])
    left(folder, "server", {"number": os.getpid(), "shared": shared is not None, "right": right})


def client(folder: Path) -> None:
    until((folder / "address").exists, LIMIT)
    address = json.loads((folder / "address").read_text())
    asker = connect(address, TOKEN, 7, LIMIT, near=True)
    asker.ask(b"\0" * HEAD, [memoryview(CONTENT)])
    asker.flush()
    left(folder, "client", {"number": os.getpid(), "shared": asker._shared is not None})


def left(folder: Path, name: str, what: object) -> None:
    (folder / f"{name}.new").write_text(json.dumps(what))
    (folder / f"{name}.new").replace(folder / name)


if __name__ == "__main__":
    role, file, folder = sys.argv[1:]
    if role == "server":
        server(Path(file), Path(folder))
    else:
        client(Path(folder))
