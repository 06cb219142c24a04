"""What 10 % more of everything would change, in words and as a figure; calibration's own errors;
and what relieves a prediction of what binds it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from recsim_train.report import naming, text
from recsim_train.report.document import Picture
from recsim_train.report.drawing import (
    GRID,
    INK,
    MEASURED,
    PREDICTED,
    along,
    finish,
    for_any_window,
    narrow,
    new_rows,
    tip,
)
from recsim_train.results.row import ended
from recsim_train.results.statistics import Z95, holm, t_quantile
from recsim_train.results.summary import Summary
from recsim_train.trace.binding import Binding

CHANCE = 0.05
"""With which probability at most one change or more of all that are asked is shown where there is
none."""
KNEE = 0.85
"""Busy share from which on queues make much of little."""
WORTH_SAYING = 0.001
"""Changes of the throughput below this share are none."""
SERVERS = {
    "embedding_servers": "one more embedding server",
    "dense_servers": "one more dense server",
}
_WORDS = {
    "cores": "cores",
    "nic": "network rate",
    "uplink": "rate of the racks' uplinks",
    "latency": "latency",
    "operations": "seconds of measured operations and of what is scaled by them",
    "threads.wake": "seconds that waking an operator's threads takes",
    **{
        f"threads.{group}": f"serial share of {work}"
        for group, work in (
            ("products", "matrix products"),
            ("pairs", "the interaction"),
            ("streams", "element-wise work"),
            ("rows", "row reads"),
        )
    },
}


CAUSES = {
    "simulation": "where the simulation ended",
    "prices": "the prices' own errors",
    "operations": "errors and spread of the measured operations",
    "fits": "residuals of the fitted prices",
    "speed": "the machine's speed, which moves all prices together",
    "model": "what predictions of calibration's own runs miss beyond what is known of them, "
    "by the share of the CPU time that is around operations",
    "links": "how messages share links, by the share of the time that is of bytes and latency",
    "queue": "how packets wait for a link, which the profile does not say (network.queue)",
    "folding": "trainers that stand for others: as much as half as many would change",
    "at_once": "whether frames pass a link at once after a pause, which the profile does not say "
    "(network.passes_at_once)",
}
"""What an interval is made of (`recsim_train.evaluate.elasticity`), in words."""


_UNSEEN = 0.0005
"""A standard error that would read 0.0 %."""
_NOTHING_MISSED = (
    "Of the model no error was seen beyond the known errors of predictions of calibration's own "
    "runs, which are few and short: that is no proof that it has none"
)

NOT_ASKED = "what errors of the prices add was not asked (simulation.what_if_steps)"


def name_of(resource: str) -> str:
    """A resource in words: "costs.gemm_flop" is the price of a flop of matrix products."""
    if resource in SERVERS:
        return SERVERS[resource]
    group, _, price = resource.partition(".")
    return f"price of {naming.price(price)}" if group == "costs" else _WORDS.get(resource, resource)


def telling(summary: Summary) -> list[tuple[str, float, float]]:
    """(resource, change, half of its 95 % interval) of what changes the throughput, largest first.

    Some twenty inputs are asked, and the error is known from a few degrees of freedom: what counts
    is decided for all of them together.
    """
    from scipy.special import stdtr

    if (asked := summary.facts.what_if) is None:
        return []
    changes, errors = summary.facts.elasticities, summary.facts.elasticity_errors
    chances = {}
    for name, change in changes.items():
        error = errors.get(name, 0.0)
        far = abs(change) / error if error else inf if change else 0.0
        # one more server may change the throughput either way, other answers only one way
        chances[name] = float(stdtr(asked.degrees, -far)) * (2 if name in SERVERS else 1)
    half = t_quantile(asked.degrees)
    found = [
        (name, changes[name], half * errors.get(name, 0.0))
        for name in holm(chances, CHANCE)
        if abs(changes[name]) >= WORTH_SAYING
    ]
    return sorted(found, key=lambda f: (f[0] in SERVERS, -abs(f[1]), f[0]))


def sentences(summary: Summary, most: int = 6) -> list[str]:
    """What would change the throughput; where it was not asked, what the interval lacks."""
    asked = summary.facts.what_if
    if asked is None:
        lacks = summary.world == "simulated" and bool(summary.ci95)
        return [_no_interval(summary, NOT_ASKED)] * lacks
    found = telling(summary)
    step = text.percent(asked.step).replace(".0 ", " ")
    changes = {name: f"{name_of(name)} {text.percent(c, signed=True)}" for name, c, _ in found}
    inputs = [said for name, said in changes.items() if name not in SERVERS]
    servers = [said for name, said in changes.items() if name in SERVERS]
    said = [f"{step} more of one of them changes the throughput by: {', '.join(inputs[:most])}"]
    if not inputs:
        said = [f"{step} more of any resource or price changes nothing that can be told from noise"]
    said += [f"With {' or '.join(servers)}"] if servers else []
    said += [f"{name_of(n)[0].upper()}{name_of(n)[1:]}: {why}" for n, why in asked.skipped.items()]
    error = ended(summary.examples_per_second, summary.ci95)
    made = made_of(summary.facts.calibration_errors, error)
    if not made and summary.facts.calibration_ci95 is None:
        made = [_no_interval(summary, "the profile says nothing of its prices' errors")]
    return said + made + (_knee(summary, step) if summary.facts.calibration_errors else [])


def _no_interval(summary: Summary, why: str) -> str:
    """Where calibration's part of it is not known, the other one is called what it is."""
    error = ended(summary.examples_per_second, summary.ci95)
    alone = f"; {CAUSES['simulation']} alone leaves ± {text.percent(Z95 * (error or 0.0))}"
    return f"No interval: {why}{'' if error is None else alone}"


def _knee(summary: Summary, step: str) -> list[str]:
    """That a resource is so busy that errors grow."""
    name, share = max(summary.utilisation.items(), key=lambda item: item[1], default=("", 0.0))
    if share < KNEE:
        return []
    return [
        f"{naming.resource(name)} is {text.percent(share)} busy: near saturation queues answer to "
        "a small error with a larger one, and the interval is as wide as the throughput moved when "
        f"all inputs were changed by {step}"
    ]


def made_of(errors: Mapping[str, float], simulation: float | None = None) -> list[str]:
    """What the 90 % interval is made of; nothing where calibration's part of it is not known.

    ``errors``: standard errors by cause, shares of the throughput; ``simulation``: of the
    simulation's length.
    """
    if not errors:
        return []
    nothing = errors.get("model", 1.0) < _UNSEEN
    known = dict(errors) if simulation is None else {"simulation": simulation, **errors}
    parts = [
        f"{CAUSES.get(cause, cause)} ± {text.percent(Z95 * error)}"
        for cause, error in known.items()
        if not (nothing and cause == "model")
    ]
    return [
        *([f"The 90 % interval is made of, in quadrature: {'; '.join(parts)}"] if parts else ()),
        *([_NOTHING_MISSED] if nothing else ()),
    ]


@for_any_window
def what_if_figure(summary: Summary, name: str, label: str) -> Picture | None:
    """Bars of the changes with their 95 % intervals; None where there is nothing to show."""
    found = telling(summary)[:14]
    if not found:
        return None
    names = [name_of(resource) for resource, _, _ in found]
    figure, axes = new_rows(names, 0.32, 1.1)
    widest = max(abs(change) + error for _, change, error in found)
    for y, (_, change, error) in enumerate(found):
        fill = MEASURED if change > 0 else PREDICTED
        drawn = axes.barh(y, 100 * change, 0.62, color=fill)
        way, around = text.percent(change, signed=True), text.percent(error)
        tip(drawn, f"{names[y]}: {way} ± {around} (95 %)")
        if error > 0.0005:
            bar = 100 * error
            axes.errorbar(100 * change, y, xerr=bar, color=INK, capsize=2.5, linewidth=1.0)
        end = change + (error + 0.015 * widest) * (1 if change > 0 else -1)
        side = "left" if change > 0 else "right"
        axes.text(100 * end, y, way, ha=side, va="center", fontsize=8)
    axes.axvline(0, color=GRID, linewidth=1.0)
    low = min(0.0, *(c - e for _, c, e in found))
    most = max(0.0, *(c + e for _, c, e in found))
    room = (0.3 if narrow() else 0.16) * (most - low)
    axes.set_xlim(100 * (low - (room if low < 0 else 0)), 100 * (most + (room if most > 0 else 0)))
    axes.spines["left"].set_visible(False)
    along(axes, "change of the predicted throughput (%)")
    title = f"{label}: what 10 % more of each resource or price, or one more server, would change"
    return finish(figure, name, title)


_MORE = {
    "cores": "{step} more cores",
    "nic": "{step} faster network cards",
    "uplink": "{step} faster uplinks of the racks",
    **SERVERS,
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
        ((change, name) for name, change, _ in telling(summary)
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
