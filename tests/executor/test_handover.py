"""Memory is shared with the client that offers it, and nothing else is ever written into."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import mmap
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from recsim_train.executor.link import connections, ring
from recsim_train.executor.link.connections import Answerer, Asker, ClientListener, connect
from recsim_train.executor.link.ring import place_of
from tests.clock import LIMIT
from tests.executor.test_emulation import refused as no_network
from tests.ports import free_port

TOKEN = b"t" * connections.TOKEN_BYTES
HEAD = 24
HELLO = connections._HELLO.pack(connections._PROTOCOL, TOKEN, 7, b"a number of one!")
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""A program in a process namespace of its own, in which it is number 1."""
SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def refused() -> str:
    """Why there can be no process namespaces here; nothing where there can."""
    try:
        words = [*APART, "true"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "there is no program unshare"
    return done.stderr.strip() if done.returncode else ""


@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_equal_process_numbers_in_two_namespaces_harm_no_file(tmp_path: Path) -> None:
    """The server has a data file open under the number that the client's memory has."""
    file = tmp_path / "day_0.tsv"
    file.write_bytes(b"1\t2\t3\n" * 1000)
    os.truncate(file, 210_000_000)
    before = digest(file)
    program = [*APART, sys.executable, "-m", "tests.executor.equal_numbers"]
    words = str(file), str(tmp_path)
    started = [subprocess.Popen([*program, role, *words]) for role in ("server", "client")]
    try:
        codes = [one.wait(LIMIT) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait(LIMIT)
    assert digest(file) == before
    assert codes == [0, 0]
    server, client = (json.loads((tmp_path / role).read_text()) for role in ("server", "client"))
    assert server == {"number": 1, "shared": True, "right": True}
    assert client == {"number": 1, "shared": True}


EXPERIMENT = """
name: apart
model: tiny
data: {path: rows.tsv, eval_rows: 200}
roles: {trainers: 2, embedding_servers: 2, dense_servers: 0}
training: {batch_size: 512, threads: 1, steps: 10, warmup_steps: 1}
strategy: allreduce
"""
HOST = """
for rank in $RANKS; do
  RANK=$rank python -m recsim_train run apart.yaml --out $SHARED-$rank \\
    --set execution.shared_memory=$SHARED &
done
status=0
for job in $(jobs -p); do wait $job || status=$?; done
exit $status
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(why := refused()), reason=why)
def test_ranks_in_two_namespaces_learn_what_they_learn_apart_and_harm_no_file(
    tmp_path: Path,
) -> None:
    """Each namespace has a trainer and a server, the processes of the same numbers in both."""
    drawn = random.Random(3)
    rows = [
        "\t".join(
            [str(drawn.randrange(2)), *map(str, drawn.choices(range(50), k=13))]
            + [f"{drawn.randrange(1 << 32):08x}" for _ in range(26)]
        )
        for _ in range(4000)
    ]
    text = ("\n".join(rows) + "\n").encode()
    file = tmp_path / "rows.tsv"
    file.write_bytes(text * (1 + ring.size() // len(text)))
    (tmp_path / "apart.yaml").write_text(EXPERIMENT)
    before = digest(file)
    learned = []
    for shared in ("true", "false"):
        port = str(free_port())
        started = [
            subprocess.Popen(
                [*APART, "bash", "-c", HOST],
                cwd=tmp_path,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "RANKS": ranks,
                    "WORLD_SIZE": "4",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port,
                    "SHARED": shared,
                },
            )
            for ranks in ("0 2", "1 3")
        ]
        try:
            assert [one.wait(LIMIT) for one in started] == [0, 0]
        finally:
            for one in started:
                one.kill()
                one.wait(LIMIT)
        (run,) = (tmp_path / f"{shared}-0").iterdir()
        summary = json.loads((run / "summary.json").read_text())
        names = "loss", "auc", "train_loss_first", "train_loss_last", "bytes_by_effect"
        learned.append([summary[name] for name in names])
        assert digest(file) == before
    assert learned[0] == learned[1]


def digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def memory(hello: bytes = HELLO, seals: int = SEALED, size: int | None = None) -> int:
    """Memory as a client makes it, or nearly so."""
    file = os.memfd_create("of this test", os.MFD_ALLOW_SEALING)
    os.ftruncate(file, ring.size() if size is None else size)
    os.pwrite(file, hello, 0)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


def ordinary(folder: str) -> int:
    """A data file, as large as the memory and with the right words in it."""
    file, name = tempfile.mkstemp(dir=folder)
    os.unlink(name)
    os.ftruncate(file, ring.size())
    os.pwrite(file, HELLO, 0)
    return file


def read_only() -> int:
    writable = memory()
    file = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY)
    os.close(writable)
    return file


def of_client(number: int, token: bytes = TOKEN) -> bytes:
    return connections._HELLO.pack(connections._PROTOCOL, token, number, b"a number of one!")


OTHERS: dict[str, Callable[[], int]] = {
    "an ordinary file": lambda: ordinary(tempfile.gettempdir()),
    "an ordinary file in memory": lambda: ordinary("/dev/shm"),
    "memory that is not sealed": lambda: memory(seals=0),
    "memory that may shrink": lambda: memory(seals=fcntl.F_SEAL_SEAL | fcntl.F_SEAL_GROW),
    "memory to be sealed later": lambda: memory(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW),
    "memory that may not be written": lambda: memory(seals=SEALED | fcntl.F_SEAL_WRITE),
    "memory that is open for reading": read_only,
    "memory without a word": lambda: memory(b""),
    "memory with another token": lambda: memory(of_client(7, b"x" * connections.TOKEN_BYTES)),
    "memory of another client": lambda: memory(of_client(8)),
    "memory of another connection": lambda: memory(HELLO[:-1] + b"?"),
    "memory that is too small": lambda: memory(size=1 << 20),
    "memory that is too large": lambda: memory(size=ring.size() + mmap.PAGESIZE),
    "a socket": lambda: socket.socket().detach(),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_memory_of_this_client_is_left_alone_and_the_run_goes_on(what: str) -> None:
    listener = ClientListener("127.0.0.1", TOKEN, [7, 8], HEAD)
    file = OTHERS[what]()
    before = content_of(file)
    sent_to(listener, file)
    host, port = listener.address.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), LIMIT)
    client.sendall(HELLO)
    assert client.recv(1) == connections._APART
    asker, answerer = Asker(client, LIMIT), listener.client(7)
    assert echoed(asker, answerer)
    assert content_of(file) == before
    os.close(file)
    for end in (asker, answerer, listener):
        end.close()


def content_of(file: int) -> str:
    try:
        return hashlib.sha256(os.pread(file, 1 << 20, 0)).hexdigest()
    except OSError:  # of a socket
        return ""


def sent_to(listener: ClientListener, *files: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.settimeout(LIMIT)
        to.connect(place_of(listener.address, TOKEN))
        socket.send_fds(to, [b"memory"], files) if files else to.send(b"")


def echoed(asker: Asker, answerer: Answerer) -> bool:
    """Whether a request of more than is shared at least comes whole."""
    content = os.urandom(1 << 20)

    def ask() -> None:
        asker.ask(b"\0" * HEAD, [memoryview(content)])
        asker.flush()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    size = answerer.next()[1]
    same = size == len(content) and bytes(answerer.payload()) == content
    thread.join(LIMIT)
    return same and not thread.is_alive()


def test_memory_with_the_hello_of_the_connection_is_shared() -> None:
    """The one that all others above differ from."""
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    file = memory()
    sent_to(listener, file)
    host, port = listener.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT) as client:
        client.sendall(HELLO)
        assert client.recv(1) == connections._SHARED
    os.close(file)
    listener.client(7).close()


def mapped() -> int:
    """How often memory of a test is mapped here."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("of this test")


def test_memory_of_nobody_who_is_to_come_is_not_kept() -> None:
    gc.collect()  # what tests before have shared goes now, or stays
    before = mapped()
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    strangers = [memory(of_client(7, b"x" * connections.TOKEN_BYTES)), memory(of_client(8))]
    for file in strangers:
        sent_to(listener, file)
        os.close(file)
    host, port = listener.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT) as client:
        client.sendall(HELLO)
        assert client.recv(1) == connections._APART  # it has looked at all offers before it says so
        assert mapped() == before
    listener.client(7).close()


def test_who_does_not_know_the_token_does_not_know_the_name() -> None:
    names = {place_of("127.0.0.1:29500", secret * 32) for secret in (b"a", b"b")}
    assert len(names) == 2
    assert place_of("127.0.0.1:29500", b"a" * 32) in names
    assert place_of("127.0.0.1:29501", b"a" * 32) not in names


def open_files() -> list[str]:
    """What the files are that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found


def test_strangers_at_the_name_keep_nobody_waiting_and_leave_no_files_open() -> None:
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    file = ordinary(tempfile.gettempdir())
    name = os.readlink(f"/proc/self/fd/{file}")
    for number in range(300):
        sent_to(listener, *[file] * (number % 3))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as silent:
        silent.connect(place_of(listener.address, TOKEN))
        asker = connect(listener.address, TOKEN, 7, LIMIT, near=True)
    answerer = listener.client(7)
    assert asker._shared is not None
    assert echoed(asker, answerer)
    assert not os.pread(file, 1 << 20, len(HELLO)).strip(b"\0")
    assert open_files().count(name) == 1
    os.close(file)
    for end in (asker, answerer, listener):
        end.close()


def test_a_client_that_gets_no_word_in_has_a_plain_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server hears nobody at its name: strangers have filled what waits there."""
    monkeypatch.setattr(ring.Offers, "take", lambda _: time.sleep(0.05))
    monkeypatch.setattr(ring, "_WAITING", 1)
    monkeypatch.setattr(connections, "_PATIENCE", 0.5)
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        stranger.connect(place_of(listener.address, TOKEN))
        with suppress(BlockingIOError):
            for _ in range(100_000):
                stranger.send(b"")
    asker = connect(listener.address, TOKEN, 7, LIMIT, near=True)
    answerer = listener.client(7)
    assert asker._shared is None
    assert echoed(asker, answerer)
    for end in (asker, answerer, listener):
        end.close()


def test_a_listener_that_is_closed_while_it_looks_at_an_offer_waits_for_no_other_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose number would be that of its own socket, and which it would hold open."""
    looks, goes_on = threading.Event(), threading.Event()

    def take(_: ring.Offers) -> None:
        looks.set()
        goes_on.wait(LIMIT)

    monkeypatch.setattr(ring.Offers, "take", take)
    before = set(threading.enumerate())
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    (thread,) = set(threading.enumerate()) - before
    sent_to(listener)
    assert looks.wait(LIMIT)
    listener.close()
    pipes = [os.pipe() for _ in range(4)]
    goes_on.set()
    thread.join(LIMIT / 9)
    assert not thread.is_alive()
    for pipe in pipes:
        for end in pipe:
            os.close(end)


@pytest.mark.parametrize("end", ["server", "client"])
def test_where_there_is_no_name_connections_are_plain(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as in a sandbox that allows no Unix sockets."""

    def place(address: str, token: bytes) -> str:
        return "\0" + "too long" * 100

    if end == "server":
        monkeypatch.setattr(connections, "place_of", place)
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    monkeypatch.setattr(connections, "place_of", place)
    asker = connect(listener.address, TOKEN, 7, LIMIT, near=True)
    answerer = listener.client(7)
    assert asker._shared is None
    assert echoed(asker, answerer)
    for one in (asker, answerer, listener):
        one.close()


@pytest.mark.skipif(bool(why := no_network()), reason=why)
def test_another_network_namespace_reaches_nobody_by_the_name() -> None:
    from recsim_train.executor.emulation.namespaces import Namespace

    elsewhere = Namespace()
    listener = ClientListener("127.0.0.1", TOKEN, [7], HEAD)
    place = place_of(listener.address, TOKEN)
    assert elsewhere.do(lambda: ring.offer(place, HELLO, 5.0)) is None
    assert ring.offer(place, HELLO, 5.0) is not None
    listener.close()
    elsewhere.close()


OF_ANOTHER = """
import os, sys
from recsim_train.executor.emulation.namespaces import Namespace
held = Namespace()
print(os.readlink(held.path) == held.do(lambda: os.readlink("/proc/thread-self/ns/net")))
"""


@pytest.mark.skipif(bool(why := no_network() or refused()), reason=why)
def test_a_network_namespace_is_found_where_proc_counts_processes_otherwise() -> None:
    """By its own number, 1, it would name a file of the machine's first process."""
    words = [*APART[:-1], sys.executable, "-c", OF_ANOTHER]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.stdout == "True\n", done.stderr
