"""A reader process whose way to the trainers is lost: all its threads end, none waits for ever."""

from __future__ import annotations

import threading
import time
from typing import cast

import torch.distributed as dist

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.feed import ReaderProcess
from recsim_train.placement.build import build_plan
from recsim_train.trace.record import Recorder


def test_all_threads_of_a_reader_end_when_one_has_failed() -> None:
    spec = Experiment(
        name="reader",
        model=Model(
            embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(8, 1), tables=(Table(rows=40),) * 2
        ),
        data=Data(eval_rows=16, synthetic=Synthetic(rows=5_000)),
        roles=Roles(trainers=2, readers=1),
        training=Training(batch_size=16, steps=10**6, warmup_steps=0),
        strategies=(StrategyChoice(kind="allreduce"),),
    )
    plan = build_plan(spec, spec.strategies[0])
    over, failures = threading.Event(), list[BaseException]()

    def failed(error: BaseException) -> None:
        failures.append(error)
        over.set()

    reader = ReaderProcess(
        plan,
        "reader[0]",
        cast("dist.ProcessGroup", None),  # there is no such group: sending fails
        time.monotonic,
        lambda: Recorder(warmup=0, steps=1, max_spans=1),
        failed,
        over.is_set,
        0,
    )
    threads = reader.start()
    assert len(threads) == 3
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert isinstance(failures[0], ValueError)  # torch's own, before any of those who waited
