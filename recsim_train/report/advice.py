"""What binds a prediction, and what to do about it, in one sentence."""

from __future__ import annotations

from recsim_train.report import naming, text, what_if
from recsim_train.results.figures import Summary
from recsim_train.trace.binding import Binding

_MORE = {
    "cores": "{step} more cores",
    "nic": "{step} faster network cards",
    "uplink": "{step} faster uplinks of the racks",
    **what_if.SERVERS,
}
"""Of what was asked: inputs of which more can be had."""
_OTHERWISE = (
    ({"server's lock"}, "More servers: each is one process, whose threads take turns"),
    ({"interpreter"}, "More processes with fewer threads each relieve it"),
    ({"cores"}, "More or faster cores, or fewer processes on them"),
    ({"thread", "readers"}, "More readers, or examples that are cheaper to read"),
    (
        {"nic.tx", "nic.rx", "up", "down", "transfer"},
        "A faster network, or fewer bytes (execution.wire=bfloat16)",
    ),
    ({"latency"}, "Larger batches: fewer requests for each example"),
    ({"waiting"}, "Less frequent synchronisation, or hosts that are equally fast"),
    ({"own_compute", "compute"}, "More trainers, as far as what they share allows"),
    ({"queueing"}, "More of what they queue for"),
)
"""By the kind or the part of what binds: what relieves it, where nothing that was asked does."""


def remedy(summary: Summary) -> str:
    """What to do about what binds, a sentence without a full stop: by the largest gain among what
    was asked, else by how many servers it takes, else by what usually relieves such a thing."""
    asked = summary.facts.what_if
    step = text.percent(asked.step).replace(".0 ", " ") if asked else ""
    gains = sorted(
        ((change, name) for name, change, _ in what_if.telling(summary)
         if name in _MORE and change > 0),
        reverse=True,
    )  # fmt: skip
    if gains:
        said = [f"{_MORE[n].format(step=step)}: {text.percent(c, signed=True)}" for c, n in gains]
        return said[0][:1].upper() + "; ".join(said[:2])[1:]
    if lacking := servers_lacking(summary):
        return f"{lacking} would not bind"
    return relief(summary.binding) or "Nothing that was asked changes it"


def servers_lacking(summary: Summary) -> str:
    """How many servers it would take; empty: those that there are do not bind."""
    lacking = {
        role: entry
        for role, entry in (summary.facts.servers_needed or {}).items()
        if entry.needed > entry.present
    }
    said = [
        f"{entry.needed} {role.replace('_', ' ')}s instead of {entry.present}"
        for role, entry in lacking.items()
    ]
    more = sum(entry.needed - entry.present for entry in lacking.values())
    left = min((e.hosts_left for e in lacking.values() if e.hosts_left is not None), default=more)
    where = f"{left or 'no'} further host{'s' if left > 1 else ''}"
    instead = f" (the cluster has {where}: in place of trainers)" if left < more else ""
    return f"{' and '.join(said)}{instead}"


def relief(binding: Binding | None, *, busiest: bool = False) -> str:
    """What usually relieves what binds; empty: not known. ``busiest``: where no resource is
    saturated, what relieves the busiest one, if it is of more use."""
    known = naming.typed(binding)
    signs = {known.what, known.resource.partition(".")[2] if busiest else ""}
    if "interpreter" in signs and "server" in known.resource:
        signs.add("server's lock")
    return next((do for which, do in _OTHERWISE if signs & which), "")
