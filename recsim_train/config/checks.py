"""Checks across fields: what no single field can say."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from recsim_train.config.cluster import (
    THREAD_CLASSES,
    UNKNOWN,
    CheckpointPrices,
    Cluster,
    Costs,
    Host,
)
from recsim_train.config.columns import check_columns
from recsim_train.config.experiment import (
    MOST_THREADS,
    Data,
    Experiment,
    Gates,
    Model,
)
from recsim_train.config.formats import WITHOUT_PATH, unfit
from recsim_train.config.measured import SHAPE, MeasuredOperation
from recsim_train.config.problems import KeyPath, Mistakes, dotted, shown, suggest
from recsim_train.config.topology import MixedHosts, Stragglers, Traffic

_WITHOUT = {
    "path": "null: the generator feeds",
    "eval_path": "null: the first data.eval_rows rows are held out",
}
"""What null means, by the settings of data that name a file."""
SAME_ROWS = (
    "{eval_path} holds the rows of {path} (data.path) itself, which are trained on; name a file of "
    "other rows, or null: the first data.eval_rows rows of {path} are held out"
)
_FUNCTION = re.compile(r"(?:.*\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def check_size(experiment: Experiment, mistakes: Mistakes) -> None:
    """No more threads than can be planned, before any of them is."""
    trainers, threads = experiment.roles.trainers, experiment.training.threads
    if trainers * threads > MOST_THREADS:
        mistakes.add(
            ("training", "threads"),
            f"expected at most {MOST_THREADS:,} threads of all trainers together, got "
            f"{trainers:,} times {threads:,}",
        )


def check_model(model: Model, mistakes: Mistakes) -> None:
    """Shapes that fit together."""
    ends = [("top_mlp", 1, "1, the click's logit")]
    if model.module is not None:
        ends = []
        for key in ("bottom_mlp", "top_mlp"):
            if getattr(model, key):
                mistakes.add(("model", key), "a module has layers of its own: leave it out")
        if _FUNCTION.fullmatch(model.module) is None:
            mistakes.add(
                ("model", "module"),
                f"expected FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION, got {shown(model.module)}",
            )
    elif model.kind == "module":
        mistakes.add(("model", "kind"), "model.module is missing, which says where the net is")
    elif model.kind == "dlrm":
        dim = model.embedding_dim
        ends.insert(0, ("bottom_mlp", dim, f"embedding_dim ({dim})"))
    elif model.bottom_mlp:
        mistakes.add(("model", "bottom_mlp"), f"a {model.kind} has no bottom MLP: leave it out")
    if model.kind == "dcn" and len(model.top_mlp) == 1:
        mistakes.add(
            ("model", "top_mlp"), "a dcn needs a deep layer before the logit, such as [256, 128, 1]"
        )
    for key, last, what in ends:
        widths = getattr(model, key)
        if not widths:
            mistakes.add(("model", key), "expected at least one layer, got an empty list")
        elif widths[-1] != last:
            mistakes.add(("model", key), f"the last width must equal {what}, got {widths[-1]}")


def check_data(data: Data, mistakes: Mistakes) -> None:
    """Files that are files, other rows held out than trained on, and enough of them."""
    for key, otherwise in _WITHOUT.items():
        names = getattr(data, key)
        if names == ():
            mistakes.add(("data", key), f"expected a file, got an empty list; {otherwise}")
        for name in names or ():
            if not name.strip():
                mistakes.add(("data", key), f"expected a file, got empty text; {otherwise}")
            elif _URL.match(name):
                mistakes.add(
                    ("data", key),
                    f"expected a file of this machine, got the URL {shown(name)}: mount it, or "
                    "copy it first",
                )
    path, eval_path = data.path or (), data.eval_path or ()
    both = {os.path.abspath(name): name for name in path}
    for name in eval_path if data.holds_out else ():
        if (other := both.get(os.path.abspath(name))) is not None:
            mistakes.add(("data", "eval_path"), SAME_ROWS.format(path=other, eval_path=name))
    if data.eval_share is not None and "eval_rows" in data.model_fields_set:
        mistakes.add(("data", "eval_share"), "expected either eval_rows or eval_share")
    generated = not path or data.generate
    rows, held_out = data.synthetic.rows, data.eval_rows if data.eval_share is None else 0
    if generated and not eval_path and rows <= held_out:
        mistakes.add(
            ("data", "synthetic", "rows"),
            f"must exceed data.eval_rows ({held_out}), the rows held out of it, got {rows}",
        )
    if data.generate and (data.columns or len(path) > 1):
        mistakes.add(
            ("data", "generate"), "the generator writes one file of Criteo's columns", at_key=True
        )
    if data.columns and not path:
        mistakes.add(("data", "columns"), "there is no data.path whose columns they could be")
    check_columns(data.label, data.columns, mistakes)


def check_fed(model: Model, data: Data, mistakes: Mistakes) -> None:
    """A model that Criteo's columns can feed, where nothing else is said of the files."""
    if not data.path or data.columns:
        return
    source = f"the Criteo text {data.named(data.path)!r} (data.path)"
    for path, why in unfit(model):
        mistakes.add(path, f"{source} {why}; {WITHOUT_PATH}")


def check_cluster(cluster: Cluster, mistakes: Mistakes) -> None:
    """Hosts for every role, surroundings that fit them, prices that claim no more than is known."""
    if "default" not in cluster.hosts:
        mistakes.add(("hosts",), "missing host type 'default', which roles without their own use")
    limits = cluster.limits
    count = limits.pop("mixed.default", 0)
    most = min(limits.values(), default=count)
    if count and count != most:
        mistakes.add(
            ("mixed", "default"),
            f"expected {most} hosts, as many as there are ({', '.join(limits)}), got {count}",
        )
    if cluster.mixed_from_last and not cluster.lots("default"):
        mistakes.add(
            ("mixed_from_last",),
            "there is no mixed.default from whose last entries roles take hosts",
            at_key=True,
        )
    for role, entries in (cluster.mixed or {}).items():
        if role not in cluster.hosts and cluster.lots("default"):
            mistakes.add(
                ("mixed", role),
                "mixed.default says which hosts there are for roles without a type of their own in "
                "hosts; say who takes its last entries by mixed_from_last",
            )
        for n, entry in enumerate(entries[:-1]):
            if entry.count is None:
                mistakes.add(
                    ("mixed", role, n, "count"),
                    "missing; only the last entry may leave out how many hosts it describes",
                )
    _check_rents(cluster, mistakes)
    for path in (
        *(("costs", price) for price in Costs.model_fields),
        *(("threads", law) for law in (*THREAD_CLASSES, "wake")),
        *(("checkpoints", price) for price in CheckpointPrices.model_fields if cluster.checkpoints),
    ):
        known = getattr(getattr(cluster, path[0]), path[1])
        if known.basis in UNKNOWN and known.uncertainty < 1.0:
            mistakes.add(
                (*path, "uncertainty"), f"expected 100 %, because its basis is {known.basis!r}"
            )
    for name in THREAD_CLASSES:
        law = cluster.threads.of(name)
        if law.overhead > law.serial:
            mistakes.add(
                ("threads", name, "overhead"),
                f"expected at most {name}.serial ({law.serial:.3%}), got {law.overhead:.3%}",
            )
    wake = cluster.threads.wake
    for part in ("caller", "pool"):
        if getattr(wake, part) > wake.wall:
            mistakes.add(
                ("threads", "wake", part),
                f"expected at most wake.wall, {wake.wall:g} s: no thread is busy for longer",
            )
    _check_operations(cluster.operations or (), mistakes)
    _check_loopback(cluster, mistakes)
    _check_surroundings(cluster, mistakes)


def _check_rents(cluster: Cluster, mistakes: Mistakes) -> None:
    hosts: list[tuple[KeyPath, Host | MixedHosts]] = [
        (("hosts", name), host) for name, host in cluster.hosts.items()
    ]
    for role, entries in (cluster.mixed or {}).items():
        hosts += [(("mixed", role, index), entry) for index, entry in enumerate(entries)]
    first = ""
    for path, host in hosts:
        if host.rent is None:
            continue
        first = first or host.rent.currency
        if host.rent.currency != first:
            mistakes.add(
                (*path, "rent", "currency"),
                f"expected {first} as elsewhere in this profile, got {host.rent.currency}: "
                "amounts are added up and not converted",
            )


def _check_loopback(cluster: Cluster, mistakes: Mistakes) -> None:
    """Hosts of their own are joined by a network, of which loopback knows nothing."""
    measured = cluster.network.loopback
    if measured is None or cluster.colocate:
        return
    given: dict[KeyPath, float | None] = {
        ("network", "latency"): cluster.network.latency,
        ("network", "connection_cap"): cluster.network.connection_cap,
        ("hosts", "default", "nic"): cluster.hosts["default"].nic,
    }
    left = [path for path, figure in given.items() if figure == getattr(measured, str(path[-1]))]
    if left:
        names = ", ".join(dotted(path) for path in left)
        mistakes.add(
            left[0],
            f"with colocate: false hosts are joined by a network, and {names} "
            f"{'is' if len(left) == 1 else 'are'} still what was measured within one machine: give "
            "the network's (connection_cap: null where only the NIC limits a connection)",
        )


def _check_operations(operations: Sequence[MeasuredOperation], mistakes: Mistakes) -> None:
    for n, entry in enumerate(operations):
        if not re.fullmatch(SHAPE, entry.shape):
            mistakes.add(
                ("operations", n, "shape"),
                "expected settings, a semicolon and sizes, as `calibrate --for` writes them",
            )
        for price in entry.work:
            if price not in Costs.model_fields:
                mistakes.add(
                    ("operations", n, "work", price),
                    f"there is no price {price!r}{suggest(price, Costs.model_fields)}",
                    at_key=True,
                )
        pooled = entry.pooled
        if pooled is not None and pooled.cpu > 1.001 * pooled.threads * pooled.seconds:
            mistakes.add(
                ("operations", n, "pooled", "cpu"),
                f"{pooled.threads} threads cannot be busy for longer in that time",
            )


def _check_surroundings(cluster: Cluster, mistakes: Mistakes) -> None:
    """What surrounds the hosts fits together, and there are hosts for it."""
    if cluster.colocate:
        for key in ("most_hosts", "per_host", "mixed", "topology", "background", "failures"):
            if getattr(cluster, key):
                mistakes.add(
                    (key,),
                    "with colocate: true all roles are processes of one machine, so there are no "
                    "hosts to tell apart; leave it out or set colocate: false",
                    at_key=True,
                )
        for key in ("slow", "episodes"):
            if cluster.stragglers is not None and getattr(cluster.stragglers, key):
                mistakes.add(
                    ("stragglers", key),
                    "with colocate: true all roles are on one machine: no host is slower",
                    at_key=True,
                )
    racks = cluster.topology
    if racks is not None and (racks.uplink is None) == (racks.oversubscription is None):
        mistakes.add(
            ("topology",),
            "expected either uplink (such as '100 Gbit/s') or oversubscription (such as 4)",
        )
    if racks is not None and (given := len(racks.rooms or ())) not in (0, racks.racks):
        mistakes.add(
            ("topology", "hosts_per_rack"),
            f"expected one number for each of {racks.racks} racks, got {given}",
        )
    if racks is not None and (most := cluster.most_hosts) and most < racks.racks:
        mistakes.add(
            ("topology", "racks"), f"expected no more racks than hosts (most_hosts: {most})"
        )
    if cluster.stragglers is not None:
        _check_stragglers(cluster.stragglers, mistakes)
    if cluster.background:
        _check_traffic(cluster.background, racks is not None, mistakes)
    failures = cluster.failures
    if failures is not None:
        if failures.mtbf is not None and failures.mtbf <= failures.restart:
            mistakes.add(
                ("failures", "mtbf"),
                "expected more than restart: such hosts would be down most of the time",
            )
        if failures.mtbf is None and not failures.schedule:
            mistakes.add(("failures",), "expected mtbf, schedule or both; else nothing fails")


def _check_stragglers(stragglers: Stragglers, mistakes: Mistakes) -> None:
    for n, slow in enumerate(stragglers.slow):
        if bool(slow.hosts) == (slow.share is not None):
            mistakes.add(
                ("stragglers", "slow", n),
                "expected either hosts (such as ['trainer[2]']) or share (such as 10 %)",
            )
        if slow.share == 0.0:
            mistakes.add(("stragglers", "slow", n, "share"), "expected a share above 0 %")
    tail = stragglers.tail
    if tail is not None:
        pareto = tail.distribution == "pareto"
        wanted, other = ("index", "deviation") if pareto else ("deviation", "index")
        if getattr(tail, wanted) is None:
            mistakes.add(
                ("stragglers", "tail", wanted), f"missing; a {tail.distribution} tail needs it"
            )
        if getattr(tail, other) is not None:
            mistakes.add(
                ("stragglers", "tail", other),
                f"a {tail.distribution} tail has none; it has {wanted}",
                at_key=True,
            )


def _check_traffic(background: Sequence[Traffic], racks: bool, mistakes: Mistakes) -> None:
    sums: dict[str, float] = {}
    for n, traffic in enumerate(background):
        path = ("background", n)
        if traffic.link == "uplink" and not racks:
            mistakes.add((*path, "link"), "there are no uplinks without a topology with racks")
        if traffic.link == "uplink" and traffic.role is not None:
            mistakes.add((*path, "role"), "uplinks belong to racks; a role has NICs", at_key=True)
        if (traffic.burst is None) != (traffic.pause is None):
            mistakes.add(path, "expected burst and pause, or neither: then it never pauses")
        sums[traffic.link] = sums.get(traffic.link, 0.0) + traffic.share
        if sums[traffic.link] >= 1.0:
            mistakes.add(
                (*path, "share"),
                f"the shares of all traffic on one {traffic.link} must stay below 100 %, "
                f"and add up to {sums[traffic.link]:.0%}: training would get nothing",
            )


def check_recovery(experiment: Experiment, mistakes: Mistakes) -> None:
    """Checkpoints where they are needed."""
    recovery, path = experiment.recovery, ("checkpoint", "every")
    if experiment.checkpoint.every is None and recovery.policy == "restart":
        mistakes.add(path, "missing; recovery.policy restart needs checkpoints")


def check_gates(gates: Gates, mistakes: Mistakes) -> None:
    """Bars that can be met."""
    least, most = gates.coverage_least, gates.coverage_most
    if least is not None and most is not None and least > most:
        mistakes.add(("validation", "gates", "coverage_least"), "expected at most coverage_most")
