"""Checks across fields: what no single field can say."""

from __future__ import annotations

from recsim_train.config.claim import Claim, claim_problems
from recsim_train.config.cluster import UNKNOWN, Cluster, Costs, Host
from recsim_train.config.experiment import (
    MOST_PROCESSES,
    MOST_THREADS,
    Data,
    Experiment,
    Model,
    Recovery,
)
from recsim_train.config.hazard_checks import check_surroundings
from recsim_train.config.problems import Findings, KeyPath
from recsim_train.config.topology import MixedHosts

CRITEO_FEATURES = 13
CRITEO_CATEGORIES = 26


def check_size(experiment: Experiment, findings: Findings) -> None:
    """No more processes and threads than can be planned, before any of them is."""
    for role, count in experiment.roles:
        if count > MOST_PROCESSES:
            message = f"expected at most {MOST_PROCESSES:,} of a role, got {count:,}"
            findings.add(("roles", role), message)
    trainers, threads = experiment.roles.trainers, experiment.training.threads
    if trainers <= MOST_PROCESSES and trainers * threads > MOST_THREADS:
        message = (
            f"expected at most {MOST_THREADS:,} threads of all trainers together, got "
            f"{trainers:,} times {threads:,}"
        )
        findings.add(("training", "threads"), message)


def check_model(model: Model, findings: Findings) -> None:
    """Shapes that fit together."""
    if not model.tables:
        findings.add(("model", "tables"), "expected at least one table, got an empty list")
    ends = [("top_mlp", 1, "1, the click's logit")]
    if model.kind == "dlrm":
        dim = model.embedding_dim
        ends.insert(0, ("bottom_mlp", dim, f"embedding_dim ({dim})"))
    elif model.bottom_mlp:
        findings.add(("model", "bottom_mlp"), f"a {model.kind} has no bottom MLP: leave it out")
    if model.kind == "dcn" and len(model.top_mlp) == 1:
        message = "a dcn needs a deep layer before the logit, such as [256, 128, 1]"
        findings.add(("model", "top_mlp"), message)
    for key, last, what in ends:
        widths = getattr(model, key)
        if not widths:
            findings.add(("model", key), "expected at least one layer, got an empty list")
        elif widths[-1] != last:
            findings.add(("model", key), f"the last width must equal {what}, got {widths[-1]}")


def check_data(data: Data, findings: Findings) -> None:
    """Enough rows for the held-out ones."""
    generated = data.path is None or data.generate
    rows, held_out = data.synthetic.rows, data.eval_rows
    if generated and data.eval_path is None and rows <= held_out:
        message = f"must exceed data.eval_rows ({held_out}), the rows held out of it, got {rows}"
        findings.add(("data", "synthetic", "rows"), message)


def check_criteo(model: Model, data: Data, findings: Findings) -> None:
    """A model that Criteo text can feed."""
    if data.path is None:
        return
    source = f"the Criteo text {data.path!r} (data.path)"
    if model.dense_features != CRITEO_FEATURES:
        message = (
            f"{source} has {CRITEO_FEATURES} integer columns, so dense_features must be "
            f"{CRITEO_FEATURES}, got {model.dense_features}"
        )
        findings.add(("model", "dense_features"), message)
    if len(model.tables) > CRITEO_CATEGORIES:
        message = (
            f"{source} has {CRITEO_CATEGORIES} categorical columns, too few for "
            f"{len(model.tables)} tables"
        )
        findings.add(("model", "tables"), message)
    for index, table in enumerate(model.tables):
        if table.ids > 1 or table.variable:
            message = (
                f"{source} has one id per column, but table {index} takes "
                f"{'up to ' if table.variable else ''}{table.ids} ids per example; without "
                "data.path the generator feeds such tables"
            )
            findings.add(("model", "tables", index), message)
            break


def check_cluster(cluster: Cluster, findings: Findings) -> None:
    """Hosts that can hold and move something, and prices that claim no more than is known."""
    if "default" not in cluster.hosts:
        findings.add(("hosts",), "missing host type 'default', which roles without their own use")
    hosts: list[tuple[KeyPath, Host | MixedHosts]]
    hosts = [(("hosts", name), host) for name, host in cluster.hosts.items()]
    for role, entries in (cluster.mixed or {}).items():
        hosts += [(("mixed", role, n), entry) for n, entry in enumerate(entries)]
        for n, entry in enumerate(entries[:-1]):
            if entry.count is None:
                message = "missing; only the last entry may leave out how many hosts it describes"
                findings.add(("mixed", role, n, "count"), message)
    for path, host in hosts:
        if host.memory is not None and host.memory <= 0:
            findings.add((*path, "memory"), "expected a size above 0")
        if host.nic is not None and host.nic <= 0:
            findings.add((*path, "nic"), "expected a data rate above 0")
    if cluster.network.connection_cap is not None and cluster.network.connection_cap <= 0:
        findings.add(("network", "connection_cap"), "expected a data rate above 0")
    for name in Costs.model_fields:
        price = getattr(cluster.costs, name)
        if price.basis in UNKNOWN and price.uncertainty < 1.0:
            message = f"expected 100 %, because the price's basis is {price.basis!r}"
            findings.add(("costs", name, "uncertainty"), message)
    check_surroundings(cluster, findings)


def check_recovery(recovery: Recovery, findings: Findings) -> None:
    """Checkpoints where they are needed."""
    every = recovery.checkpoint_every
    path = ("recovery", "checkpoint_every")
    if every is not None and every <= 0:
        findings.add(path, "expected a duration above 0")
    if every is None and recovery.policy == "restart_all_from_checkpoint":
        findings.add(path, "missing; restart_all_from_checkpoint needs checkpoints")
    if every is None and recovery.checkpoint_write > 0:
        findings.add(path, "missing; checkpoint_write says how long checkpoints take")


def check_claim(claim: Claim, findings: Findings) -> None:
    """Checks that fit their variants."""
    for path, message in claim_problems(claim):
        findings.add(("claim", *path), message)
