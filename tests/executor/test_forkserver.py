"""Processes forked from one that has torch: what they have, how they end, who ends with whom."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from recsim_train.config.errors import RunFailed
from recsim_train.executor.process import forkserver
from tests.clock import LIMIT

CHILD = """
import json, os, sys, time

def main():
    what, *words = sys.argv[1:]
    if what == "fail":
        raise ValueError("on purpose")
    facts = {
        "words": words, "ppid": os.getppid(), "pid": os.getpid(),
        "session": os.getsid(0), "folder": os.getcwd(), "torch": "torch" in sys.modules,
        "cpu": time.process_time(), "tasks": len(os.listdir("/proc/self/task")),
        "environment": dict(os.environ), "cores": sorted(os.sched_getaffinity(0)),
        "descriptors": len(os.listdir("/proc/self/fd")), "path": sys.path[0],
        "compiled": len(sys.modules["recsim_train.executor.net.rows"].sgd.signatures),
    }
    print(json.dumps(facts))
    for line in sys.stdin:
        print(line.strip() * 2)
"""
LAUNCHER = """
import os, sys, time
from recsim_train.executor.process import forkserver
with open(os.devnull, "wb") as errors:
    started = [forkserver.start("told", ["wait"], errors) for _ in range(2)]
pids = [forkserver.ready().process.pid]
for process in started:
    pids.append(__import__("json").loads(process.stdout.readline())["pid"])
{then}
"""
KEEPER = "if not os.fork(): time.sleep(30); os._exit(0)\n"


def gone(pids: Iterable[int], seconds: float) -> bool:
    """Whether none of these processes is there after at most so many seconds."""
    end, left = time.monotonic() + seconds, list(pids)
    while (left := [pid for pid in left if psutil.pid_exists(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    return not left


class Children:
    """Starts processes that say what they have; ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[forkserver.ForkedProcess] = []

    def __call__(self, *words: str) -> forkserver.ForkedProcess:
        with (self.folder / "errors.txt").open("ab") as errors:
            process = forkserver.start("told", words, errors)
        self.started.append(process)
        return process

    def facts(self, process: forkserver.ForkedProcess) -> Any:
        return json.loads(process.stdout.readline())


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Children]:
    (tmp_path / "told.py").write_text(CHILD)
    monkeypatch.chdir(tmp_path)
    children = Children(tmp_path)
    yield children
    for process in children.started:
        process.send_signal(signal.SIGKILL)
        assert process.poll(10) is not None
        process.stdin.close()
        process.stdout.close()


def test_torch_is_there_and_everything_else_is_the_launchers(
    begin: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = forkserver.ready().process.pid
    monkeypatch.setenv("SET_JUST_NOW", "yes \udcff")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("HOME", raising=False)
    process = begin("say", "one word", "")
    facts = begin.facts(process)
    assert facts["torch"]
    assert facts["cpu"] < 0.5  # importing it takes more than a second
    assert facts["words"] == ["one word", ""]
    assert facts["ppid"] == server
    assert facts["session"] == facts["pid"]
    assert facts["folder"] == facts["path"] == str(begin.folder)
    assert facts["tasks"] == 1
    assert facts["compiled"] == 1  # of float32, so that no process does it again
    assert facts["cores"] == sorted(os.sched_getaffinity(0))
    assert facts["environment"] == {**os.environ, **forkserver.ENVIRONMENT}
    assert psutil.Process(facts["pid"]).cmdline()[:6] == [
        sys.executable, "-m", "told", "say", "one word", ""
    ]  # fmt: skip
    process.stdin.write(b"so\n")
    assert process.stdout.readline() == b"soso\n"
    process.stdin.close()
    assert process.poll(10) == 0
    assert process.lost is None


def test_an_environment_of_any_size(begin: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    forkserver.ready()  # the system lets a program begin with less than that
    for number in range(30):
        monkeypatch.setenv(f"LARGE_{number}", str(number) * 90_000)
    facts = begin.facts(begin("say", "x" * 300_000))
    assert facts["environment"] == {**os.environ, **forkserver.ENVIRONMENT}
    assert facts["words"] == ["x" * 300_000]


def test_one_server_of_one_thread_for_all(begin: Children) -> None:
    seen = [begin.facts(begin("say")) for _ in range(5)]
    server = forkserver.ready().process.pid
    assert {facts["ppid"] for facts in seen} == {server}
    assert len(os.listdir(f"/proc/{server}/task")) == 1
    # none holds what belongs to another that lives
    assert len({facts["descriptors"] for facts in seen}) == 1
    assert begin.started[0].poll() is None


def test_threads_may_start_processes_side_by_side(begin: Children) -> None:
    threads = [threading.Thread(target=begin, args=("say", str(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(begin.facts(p)["words"][0] for p in begin.started) == list("012345")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("by_us", [True, False])
def test_a_signal_is_what_it_ended_by(begin: Children, number: signal.Signals, by_us: bool) -> None:
    other, process = begin("say"), begin("say")
    pid = begin.facts(process)["pid"]
    if by_us:
        process.send_signal(number)
    else:
        os.kill(pid, number)
    assert process.poll(10) == -number
    assert process.lost is None
    assert not psutil.pid_exists(pid)
    process.send_signal(signal.SIGTERM)  # nobody is there any more
    assert other.poll() is None


def test_an_error_is_told_and_exit_code_1(begin: Children) -> None:
    process = begin("fail")
    assert process.poll(10) == 1
    said = (begin.folder / "errors.txt").read_text()
    assert said.endswith("ValueError: on purpose\n")


def test_the_servers_death_is_one_sentence_and_the_next_start_makes_another(
    begin: Children,
) -> None:
    pids = [begin.facts(begin("say"))["pid"] for _ in range(2)]
    first = forkserver.ready().process.pid
    children = [psutil.Process(pid) for pid in pids]
    os.kill(first, signal.SIGKILL)
    for process in begin.started:
        assert process.poll(10) is not None
        assert process.lost == (
            "the process that all others of a run are forked from was killed by signal 9 (SIGKILL)"
        )
    assert not psutil.wait_procs(children, timeout=10)[1]
    again = begin.facts(begin("say"))
    assert again["ppid"] not in {first, os.getpid()}


def test_a_server_that_died_unseen_is_an_error(begin: Children) -> None:
    server = forkserver.ready()
    server.process.kill()
    server.process.wait()
    with (begin.folder / "errors.txt").open("wb") as errors, pytest.raises(RunFailed, match="kill"):
        server.start("told", ["say"], errors)


@pytest.mark.parametrize(
    "then",
    [
        "print(*pids, flush=True); time.sleep(60)",
        KEEPER + "print(*pids, flush=True); time.sleep(60)",
        "print(*pids, flush=True)",
    ],
    ids=["killed", "killed while another holds its socket", "ended"],
)
def test_nothing_is_left_when_the_launcher_ends(start: Any, begin: Children, then: str) -> None:
    script = begin.folder / "launcher.py"
    script.write_text(LAUNCHER.format(then=then))
    launcher = start(str(script), program=(sys.executable,), cwd=begin.folder)
    line = launcher.stdout.readline()
    assert line, launcher.stderr.read()
    if "sleep" in then:
        family = [psutil.Process(int(pid)) for pid in line.split()]
        assert len(family) == 3
        launcher.kill()
        assert not psutil.wait_procs(family, timeout=10)[1]
    else:
        assert launcher.wait(10) == 0
        assert gone(map(int, line.split()), 10.0)


def test_nothing_starts_for_a_launcher_that_has_ended(start: Any, begin: Children) -> None:
    # a role would wait two minutes for the others to join
    (begin.folder / "told.py").write_text("def main(): open('told.txt', 'w').close()")
    then = "forkserver.start('told', [], open('errors.txt', 'wb'))\n"
    then += "print(forkserver.ready().process.pid, flush=True); os._exit(0)"
    script = LAUNCHER.partition("with open")[0] + then
    launcher = start("-c", script, program=(sys.executable,), cwd=begin.folder)
    server = int(launcher.stdout.readline())
    assert launcher.wait(10) == 0
    assert gone([server], 30.0)
    assert not (begin.folder / "told.txt").exists()


def test_a_launcher_that_ends_while_torch_is_imported_leaves_nothing(
    start: Any, begin: Children
) -> None:
    """What is compiled for the first time may take longer, too."""
    (begin.folder / "torch.py").write_text("import time; time.sleep(100)")
    (staging := begin.folder / "staging").mkdir()
    then = "forkserver.remove_at_the_end(__import__('pathlib').Path('staging').resolve())\n"
    then += "print(forkserver.ready().process.pid, flush=True); os._exit(0)"
    script = LAUNCHER.partition("with open")[0] + then
    launcher = start("-c", script, program=(sys.executable,), cwd=begin.folder,
                     PYTHONPATH=f"{begin.folder}:{os.environ.get('PYTHONPATH', '')}")  # fmt: skip
    server = int(launcher.stdout.readline())
    assert launcher.wait(10) == 0
    assert gone([server], 30.0)
    assert not staging.exists()


def test_a_torch_that_cannot_be_imported_is_told(start: Any, begin: Children) -> None:
    (begin.folder / "torch.py").write_text("raise ImportError('half of it is missing')")
    then = "\nwith open(os.devnull, 'wb') as errors: process = forkserver.start('told', [], errors)"
    script = LAUNCHER.partition("with open")[0] + then + "\nprint(process.poll(60), process.lost)"
    launcher = start("-c", script, program=(sys.executable,), cwd=begin.folder,
                     PYTHONPATH=f"{begin.folder}:{os.environ.get('PYTHONPATH', '')}")  # fmt: skip
    out, errors = launcher.communicate(timeout=LIMIT)
    assert out == (
        "-9 the process that all others of a run are forked from ended with exit code 1: "
        "ImportError: half of it is missing\n"
    ), errors


SCRIPT = """
import recsim_train
alone = ["roles.trainers=1", "roles.embedding_servers=0", "roles.dense_servers=0", "model=tiny"]
study = recsim_train.load(
    {experiment!r}, overrides=[*alone, "data.path=null", "data.eval_rows=0", "training.steps=3"]
)
for _ in range(2):
    (run,) = recsim_train.measure(study)
    print(run.examples_per_second > 0)
"""


def test_a_script_of_the_users_is_not_run_again(start: Any, tmp_path: Path) -> None:
    """It has no guard against being imported."""
    experiment = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"
    (tmp_path / "mine.py").write_text(SCRIPT.format(experiment=str(experiment)))
    process = start("mine.py", program=(sys.executable, "-W", "error"), cwd=tmp_path)
    out, errors = process.communicate(timeout=LIMIT)
    assert (out, errors) == ("True\nTrue\n", "")
