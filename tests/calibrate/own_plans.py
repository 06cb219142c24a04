"""Small plans of all strategies, whose operations have micro-workloads."""

from __future__ import annotations

from typing import Any

from recsim_train.config.experiment import (
    Data,
    Execution,
    Experiment,
    Model,
    Roles,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.placement.build import build_plan
from recsim_train.placement.plan import Plan

DCT = {"compression": {"kind": "dct", "density": 0.05, "refresh": 2}}
MASKED = {"compression": {"kind": "dct", "mode": "mp", "mp_density": 0.25}}
TAGS = "bottom.0=dp, bottom.1=dp, interaction=dp, top.0=0, top.1=1, top.2=dp"

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "flat_ps": ("flat_ps", {}, {}),
    "rounded": ("flat_ps", {}, {"wire": "bfloat16"}),
    "worker": ("flat_ps", {"pooling": "worker"}, {"sparse": "sgd"}),
    "easgd": ("flat_ps", {"mode": "easgd", "every": 2}, {}),
    "local": ("flat_ps", {}, {"servers": 0}),
    "bags": ("flat_ps", {}, {"bags": True, "kind": "deepfm"}),
    "dct": ("flat_ps", DCT, {}),
    "masked": ("flat_ps", MASKED, {}),
    "allreduce": ("allreduce", {}, {"dense": "adagrad"}),
    "allreduce dct": ("allreduce", DCT, {}),
    "new": ("shadowsync", {"algorithm": {"kind": "easgd", "central": "new"}}, {}),
    "ma": ("shadowsync", {"algorithm": "ma"}, {}),
    "bmuf": ("shadowsync", {"algorithm": "bmuf"}, {}),
    "differences": ("shadowsync", {"algorithm": "easgd", **DCT}, {}),
    "gradient accumulation": ("flat_ps", {"every": 3}, {}),
    "tags": ("hierarchical", {"tags": TAGS}, {"trainers": 2}),
    "groups": ("hierarchical", {"tags": TAGS, "hosts": 2, "outer": "easgd"}, {"trainers": 4}),
    "groups ma": (
        "hierarchical",
        {"tags": TAGS, "hosts": 2, "outer": "bmuf", "sync": "foreground", "every": 2},
        {"trainers": 4},
    ),
    "des": ("des", {"partition": "field"}, {"kind": "deepfm"}),
    "des split": ("des", {"partition": "hash", "top": "split"}, {"kind": "dcn"}),
    "cache": ("scalefreectr", {"cache_share": 0.5}, {}),
}


def plan_of(name: str) -> Plan:
    kind, options, other = CASES[name]
    net, bags = other.get("kind", "dlrm"), other.get("bags", False)
    tables = tuple(Table(rows=rows) for rows in (300, 40, 500, 60))
    if bags:
        tables = (*tables[:2], Table(rows=500, ids=3), Table(rows=60, ids=4, variable=True))
    model = Model(
        kind=net,
        embedding_dim=8,
        bottom_mlp=(64, 8) if net == "dlrm" else (),
        top_mlp=(64, 32, 1),
        tables=tables,
    )
    servers = other.get("servers", 2)
    experiment = Experiment(
        name="own",
        model=model,
        data=Data(eval_rows=0, synthetic=Synthetic(rows=4000)),
        roles=Roles(
            trainers=other.get("trainers", 2),
            embedding_servers=servers,
            dense_servers=min(1, servers),
        ),
        training=Training(
            batch_size=32,
            steps=12,
            warmup_steps=2,
            sparse_optimizer=other.get("sparse", "rowwise_adagrad"),
            dense_optimizer=other.get("dense", "sgd"),
            sparse_lr=1e-4,
            dense_lr=1e-4,
        ),
        execution=Execution(wire=other.get("wire", "full")),
        strategies=(StrategyChoice(kind=kind, options=options),),
    )
    return build_plan(experiment, experiment.strategies[0])
