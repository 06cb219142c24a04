"""What `recommend` chooses among, beside the experiment's strategies."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from recsim_train.config.units import Count, Positive, Section


class Search(Section):
    """Designs of a job: `recsim-train recommend` takes each combination. What is left out has
    values that follow from the cluster; strategies are those of ``strategy``, and every known one
    where that names a single one."""

    strategies: bool = True
    """Whether every known strategy is tried where ``strategy`` names a single one."""
    hosts: tuple[Positive, ...] | None = None
    """Hosts of all roles together. Left out: the most that there may be, and some fewer."""
    embedding_hosts: tuple[Count, ...] | None = None
    """Of these, hosts of embedding servers; 0: the trainers hold the tables."""
    dense_hosts: tuple[Count, ...] | None = None
    """Of these, hosts of dense servers, one server each."""
    trainers_per_host: tuple[Positive, ...] | None = None
    """Trainer processes on each host that has any."""
    servers_per_host: tuple[Positive, ...] | None = None
    """Embedding servers on each host that has any."""
    threads: tuple[Positive, ...] | None = None
    """Of each trainer. Left out: as many as its host has cores, over the trainers there."""
    any_step: bool = False
    """Whether designs are tried, too, in which a step of the job has other examples. Else it has
    those of the experiment as written, by its first strategy: each training loop gets the batch
    that is its part of them, and designs are left out where no whole batch comes within 2 %."""
    settings: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Values of further settings by their dotted names, as ``--set`` takes them, such as
    execution.wire; ``cluster.KEY`` is of the profile."""
