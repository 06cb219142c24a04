"""What travels through shared memory or not is the same, and who handles it is scheduled aright."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from recsim_train.config.experiment import Roles, StrategyChoice
from recsim_train.config.profiles import load_cluster
from recsim_train.executor.process.launch import Interrupted, execute
from recsim_train.placement.build import build_plan
from tests.clock import by_the_clock, tried_anew
from tests.conformance.test_worlds_agree import (
    PROFILE,
    ROLES,
    STRATEGIES,
    make_plan,
    payload,
)
from tests.executor.keeping import execute_keeping
from tests.simulated import simulate

MASKED = {"kind": "dct", "mode": "mp", "mp_density": "50 %"}


@pytest.mark.parametrize(
    ("choice", "dense_servers", "wire"),
    [
        (StrategyChoice(kind="flat_ps"), 1, "full"),
        (StrategyChoice(kind="flat_ps"), 2, "full"),
        (StrategyChoice(kind="flat_ps", options={"mode": "easgd", "every": 2}), 2, "full"),
        (StrategyChoice(kind="flat_ps", options={"prefetch": 1}), 2, "bfloat16"),
        (StrategyChoice(kind="flat_ps", options={"compression": MASKED}), 1, "full"),
        (StrategyChoice(kind="allreduce"), 0, "full"),
    ],
    ids=["whole", "two parts", "elastic, two parts", "ahead, narrow", "masked", "allreduce"],
)
@tried_anew()
def test_shared_memory_changes_neither_bytes_nor_weights(
    choice: StrategyChoice, dense_servers: int, wire: str, tmp_path: Path
) -> None:
    """With payloads that are large enough for it, and nobody's order left to chance."""
    learned, sent = [], []
    for shares in (True, False):
        folder = tmp_path / str(shares)
        folder.mkdir()
        trainers = 1 if dense_servers else 2
        roles = Roles(trainers=trainers, embedding_servers=2, dense_servers=dense_servers)
        plan = make_plan(roles, choice, shared_memory=shares, wire=wire)
        spec = plan.experiment
        wide = {"embedding_dim": 32, "bottom_mlp": (96, 32), "top_mlp": (96, 1)}
        model = spec.model.model_copy(update=wide)
        training = spec.training.model_copy(update={"batch_size": 64, "threads": 1, "steps": 40})
        spec = spec.model_copy(update={"model": model, "training": training})
        plan = build_plan(spec, spec.strategies[0])
        mapped: set[str] = set()

        def look(*_: object, folder: Path = folder, mapped: set[str] = mapped) -> None:
            for role in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError):
                    if str(folder) in role.cmdline():
                        mapped.update(m.path for m in role.memory_maps() if "memfd" in m.path)

        real = execute_keeping(plan, folder, progress=look)
        assert shares or not mapped
        with by_the_clock():  # one that looks too late sees nothing
            assert any("recsim-train" in path for path in mapped) == shares
        predicted = simulate(plan, load_cluster(PROFILE, None))
        assert payload(predicted) == payload(real)
        assert predicted.facts.header_bytes == real.facts.header_bytes
        sent.append((payload(real), real.facts.header_bytes))
        learned.append(_numbers([torch.load(folder / f"{i.name}.pt") for i in plan.instances]))
    assert sent[0] == sent[1]
    assert len(learned[0]) == len(learned[1]) > 2
    assert all(torch.equal(a, b) for a, b in zip(*learned, strict=True))


def _numbers(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, dict):
        return _numbers([*state.values()])
    return [t for x in state for t in _numbers(x)] if isinstance(state, list | tuple) else []


def test_own_threads_are_scheduled_otherwise_than_gloos(tmp_path: Path) -> None:
    """gloo's threads would spin; a thread of ours that is woken by a message must not wait."""
    plan = make_plan(ROLES["servers"], STRATEGIES["downpour"])
    policies: set[int] = set()

    def look(done: int, *_: object) -> None:
        for role in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if str(tmp_path) in role.cmdline():
                    policies.update(os.sched_getscheduler(t.id) for t in role.threads())
        if done > 300:  # in training, which goes on for as long as it takes to look
            raise KeyboardInterrupt

    training = plan.experiment.training.model_copy(update={"steps": 10**6})
    spec = plan.experiment.model_copy(update={"training": training})
    with pytest.raises(Interrupted):
        execute(build_plan(spec, spec.strategies[0]), staging=tmp_path, progress=look)
    assert policies == {os.SCHED_OTHER, os.SCHED_BATCH}
