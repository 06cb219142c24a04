"""Whether a machine left its emulated hosts and their links alone.

That is decided by invariants that were stated in advance (the idea is Mininet-HiFi's: Handigol et
al., CoNEXT 2012, "Reproducible network experiments using container-based emulation"). None reads a
predicted throughput. That of sleep, of modelled compute, compares what operations took with what
they were to take, which are the prediction's times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from recsim_train.results.summary import Summary
from recsim_train.trace.ledger import AROUND

OTHERS, IDLE, WAITS, SLEPT, BEYOND, LATE, ROUND, RATE = (
    0.25, 0.25, 0.05, 0.02, 0.05, 0.05, 0.10, 0.02,
)  # fmt: skip
"""Most of all cores that other programs have, or the host of this machine takes; least idle share
of them; most that a process's threads together wait for a core, as a share
of the window; how far what a process's operations took may be from what they were to take, as a
share of that, or of the window, where they are little of it; most sleepers that wake more than a
millisecond late; most CPU time of messages and coding in a process's window; how far a link may
exceed its rate."""


def broken(summary: Summary, *, modelled: bool) -> Iterator[str]:
    """The invariants that a run breaks, each with its figure."""
    facts = summary.facts
    ledger, emulated = facts.ledger, facts.emulated
    if ledger is None or ledger.machine is None or emulated is None:
        yield "emulated: the run says nothing of its hosts"
        return
    use = ledger.machine
    if (others := (use.others + use.steal) / use.cores) > OTHERS:
        yield f"others: {others:.0%} of the cores were taken from it"
    if modelled:
        sleepers = facts.slept.values()
        if not any(one.asked for one in sleepers):
            yield "sleep: nothing was modelled"
        off = {
            name: (one.taken - one.asked) / ledger.seconds
            for name, one in facts.slept.items()
            if abs(one.taken - one.asked) > max(SLEPT * one.asked, BEYOND * ledger.seconds)
        }
        if off:
            worst = max(off, key=lambda name: abs(off[name]))
            yield f"sleep: {worst}'s operations took {off[worst]:+.1%} of the time more than asked"
        wakes = sum(one.wakes for one in sleepers)
        if (late := sum(one.late for one in sleepers) / max(1, wakes)) > LATE:
            yield f"wake-ups: {late:.1%} of them came more than a millisecond late"
        if (around := messages_share(summary)) > ROUND:
            yield f"messages: their CPU time is {around:.1%} of a process's"
    else:
        idle = 1.0 - (use.own + use.others + use.steal) / use.cores
        if idle < IDLE:
            yield f"idle: {idle:.0%} of the cores were"
        waits = {name: seconds / ledger.seconds for name, seconds in facts.core_waits.items()}
        if (longest := max(waits.values(), default=0.0)) > WAITS:
            yield f"waits: a process's threads waited {longest:.1%} of the time for a core"
    for name, rate in emulated.links.items():
        most = rate * (facts.wall_seconds or 0.0)
        if emulated.sent[name] > most * (1.0 + RATE):
            yield f"rate: {name} sent {emulated.sent[name] / most:.2f} times what its link carries"


def messages_share(summary: Summary) -> float:
    """CPU time of messages, coding and the runtime's own work in the counted window, as a share of
    it: the mean of a role's processes, of the role where that is most."""
    ledger = summary.facts.ledger
    assert ledger is not None
    processes = Counter(name.partition("[")[0] for name in summary.facts.cpu_seconds)
    shares = (
        sum(ledger.spent(what, role) for what in AROUND) / (ledger.seconds * count)
        for role, count in processes.items()
    )
    return max(shares, default=0.0)
