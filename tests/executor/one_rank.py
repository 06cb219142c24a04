"""One rank by hand: ``recsim-train`` with a rank's variables, forked from what has imported torch.

``main`` runs in the fork; `start` begins one, `ended` waits for several.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_train.executor.process import forkserver
from tests.clock import LIMIT
from tests.ports import free_port

BEGUN = "the loops have begun"
"""What a rank says then."""
UNPICKLED = "unpickled for"
SMALL = """
name: by-hand
model: {preset: tiny}
data: {eval_rows: 64, synthetic: {rows: 4000}}
roles: {trainers: 2, embedding_servers: 1, dense_servers: 0}
training: {batch_size: 32, threads: 1, steps: 30, warmup_steps: 2}
strategy: {kind: allreduce}
"""


@dataclass
class OneRank:
    """A rank that was started."""

    rank: int
    process: forkserver.ForkedProcess
    errors: Path

    @property
    def said(self) -> str:
        """What it has said so far on standard error output."""
        return self.errors.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)


@contextmanager
def ranks() -> Iterator[Starter]:
    """Starts ranks, all of which are gone in the end."""
    starter = Starter()
    try:
        yield starter
    finally:
        for one in starter.started:
            one.kill(signal.SIGCONT)
            one.kill()
            one.process.poll(10)
            one.process.stdout.close()


class Starter:
    def __init__(self) -> None:
        self.started: list[OneRank] = []
        self.port = free_port()

    def __call__(
        self,
        folder: Path,
        rank: int,
        world: int,
        *words: str,
        file: str = "small.yaml",
        **environment: str,
    ) -> OneRank:
        """``recsim-train run`` as a rank; ``environment``: more variables, "-" to leave one out."""
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **environment,
        }
        errors = folder / f"stderr-{len(self.started)}.txt"
        arguments = [json.dumps(variables), str(folder), "run", file, *words]
        with errors.open("wb") as sink:
            process = forkserver.start("tests.executor.one_rank", arguments, sink)
        process.stdin.close()
        one = OneRank(rank, process, errors)
        self.started.append(one)
        return one

    def all(self, folder: Path, world: int, *words: str, **environment: str) -> list[OneRank]:
        """Every rank of a run, with the same words."""
        return [self(folder, rank, world, *words, **environment) for rank in range(world)]


def codes(started: Sequence[OneRank], limit: float = LIMIT) -> list[int | None]:
    """Exit codes, None where one has not ended in time; what each said, for a test that fails."""
    end = time.monotonic() + limit
    ended = [one.process.poll(max(0.0, end - time.monotonic())) for one in started]
    for one, code in zip(started, ended, strict=True):
        print(f"rank {one.rank} ended with {code} and said: {one.said}")
    return ended


def until_said(one: OneRank, what: str, limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while what not in one.said:
        assert time.monotonic() < end, one.said
        time.sleep(0.05)


def prepared(folder: Path, text: str = SMALL) -> Path:
    (folder / "small.yaml").write_text(text)
    return folder


def tell_of_pickles() -> None:
    """Have it say `UNPICKLED` and for whom, whenever something is unpickled here."""
    import pickle

    import torch.distributed.distributed_c10d as torch_s

    def told(unpickle: Callable[..., Any]) -> Callable[..., Any]:
        def also(*words: Any, **more: Any) -> Any:
            who = sys._getframe(1).f_globals["__name__"]
            print(f"{UNPICKLED} {who}", file=sys.stderr, flush=True)
            return unpickle(*words, **more)

        return also

    pickle.loads = told(pickle.loads)  # type: ignore[assignment]
    torch_s._unpickler = told(torch_s._unpickler)


def main() -> None:
    """Entry point of the fork."""
    faulthandler.register(signal.SIGUSR1)  # for who wonders where one waits
    variables, folder, *words = sys.argv[1:]
    os.chdir(folder)
    os.environ.pop("GLOO_SOCKET_IFNAME", None)  # which the fork server gives
    for name, value in json.loads(variables).items():
        if value == "-":
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.argv = ["recsim-train", *words]
    if "TELL_OF_PICKLES" in os.environ:
        tell_of_pickles()
    from recsim_train.__main__ import main as command
    from recsim_train.executor.process.role import Role

    begin = Role.start

    def start_and_say(self: Role, *limit: float) -> None:
        begin(self, *limit)
        print(BEGUN, file=sys.stderr, flush=True)

    Role.start = start_and_say  # type: ignore[method-assign]

    code: object = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
