"""Clusters on which only what is named has a price."""

from __future__ import annotations

from recsim_train.config.cluster import Cluster, Costs, Price


def priced_at(seconds: float, uncertainty: str = "0 %") -> Price:
    return Price.model_validate({"value": f"{seconds!r} s", "uncertainty": uncertainty})


def priced(cluster: Cluster, latency: float = 0.0, **values: float) -> Cluster:
    """A cluster on which nothing costs anything but what is named."""
    costs = Costs(**{n: priced_at(values.get(n, 0.0)) for n in Costs.model_fields})
    network = cluster.network.model_copy(update={"latency": latency})
    return cluster.model_copy(update={"costs": costs, "network": network})
