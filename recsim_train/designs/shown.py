"""A recommendation as a document: one screen on the terminal, and a page with its figure; and
how far designs are from what predictions were held to (docs/explain/how-true.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from recsim_train.config.sweep import written
from recsim_train.config.units import RATE
from recsim_train.designs.answer import Recommended, busiest, evaluated
from recsim_train.designs.measured import MeasuredDesign, order_said
from recsim_train.designs.searching import Design
from recsim_train.designs.space import OFF, WIRE
from recsim_train.designs.wanted import CRITERIA
from recsim_train.placement.hosts import by_type, kinds_of
from recsim_train.report import cost, text
from recsim_train.report import document as doc
from recsim_train.report.document import Where, stopped
from recsim_train.report.drawing import (
    GRID,
    LINES,
    MARKERS,
    along,
    finish,
    for_any_window,
    grid_of,
    legend,
    new_figure,
    tip,
)
from recsim_train.report.naming import bottleneck, glossary, phrase
from recsim_train.report.what_if import KNEE, relief
from recsim_train.report.winner import listed
from recsim_train.results.row import BILLION, Row
from recsim_train.sim.host.memory import PART_NAMES

MOST_HOSTS: Final = 15
"""Of a setting of `experiments/fidelity-clusters.yaml`, the emulated clusters that predictions of
hosts of their own are held to."""
FASTEST_LINK: Final = 1e9 / 8
"""Of those, bytes per second."""


def distances(designs: Sequence[Design]) -> Iterator[str]:
    """A line for each, from the first on; designs that are equally far share one."""
    alike: dict[str, list[str]] = {}
    for number, design in enumerate(designs, start=1):
        said = listed(list(_beyond(design)))
        alike.setdefault(said, []).append(str(number))
    for said, numbers in alike.items():
        whose = f"design{'s'[: len(numbers) > 1]} {listed(numbers)}"
        beyond = f"beyond what was measured in {said}" if said else "of a size that was measured"
        yield f"{whose}: {beyond}"


def _beyond(design: Design) -> Iterator[str]:
    job = design.candidate.job
    profile, plan = job.profile, job.plan
    kinds = kinds_of(plan.instances, profile).values()
    cores, measured = max(kind.cores for kind in kinds), profile.measured_cores
    if measured is not None and cores > measured:
        yield f"cores of a host ({cores}, prices are of {measured})"
    if plan.operation_threads > profile.threads.measured:
        yield (
            f"threads of an operation ({plan.operation_threads}, prices are of "
            f"{profile.threads.measured})"
        )
    if profile.colocate:
        return
    if design.candidate.hosts > MOST_HOSTS:
        yield f"hosts ({design.candidate.hosts}, emulated were {MOST_HOSTS})"
    fastest = max(kind.nic for kind in kinds)
    if fastest > FASTEST_LINK:
        yield (
            f"network cards ({RATE.format(fastest, 3)}, emulated were "
            f"{RATE.format(FASTEST_LINK, 3)})"
        )


_HOURLY, _EACH, _STEP = "an hour", "examples/s per host", "examples a step"


def headline(answer: Recommended) -> str:
    """Yes or no, and what to take; without a full stop."""
    wanted, chosen = answer.wanted, answer.chosen
    rated = text.predicted(chosen.eps, chosen.interval)
    if chosen.row is None:
        rated = f"at most {text.rate(chosen.bound)}, by its bound alone"
    further = settings(chosen)
    design = f"{chosen.kind}{f' with {further}' * bool(further)} on {divided(chosen)}"
    count, so_far = answer.found.in_full, ""
    if answer.found.unfinished:
        full = f"{count} design{'s'[: count != 1]}" if count else "nothing"
        so_far = f" so far, with {full} simulated in full,"
    if wanted.target is None:
        figure = {
            "cost": f"{cost.of_row(chosen.row or Row())} for a billion examples",
            "hosts": f"{_per_host(chosen)} {_EACH}",
        }.get(wanted.by)
        best = f"The best{so_far} is {design}: it gives" if so_far else f"{design} gives"
        return f"{best} {rated} examples/s" + (
            f": {figure}, {wanted.means} found" if figure else ""
        )
    target = text.rate(wanted.target)
    if answer.met:
        most = CRITERIA[wanted.by].most
        room = text.percent(answer.headroom, signed=True)
        held = "the prediction" if wanted.likely else "the lower end of its interval"
        return (
            f"Yes, {target} examples/s: the {most} design found{so_far}"
            f"{' (per hour)' * (wanted.by == 'cost')} is {design}, with {rated}; {held} is {room} "
            "from the target"
        )
    hosts = answer.found.space.most_hosts
    likely = ""
    if chosen.whole and chosen.eps and wanted.enough(chosen.eps):
        likely = ", which is likely enough and not sure (--likely)"
    known = "Not known yet," if answer.met is None else "No, not"
    return (
        f"{known} {target} examples/s with {hosts} host{'' if hosts == 1 else 's'}: the best "
        f"found{so_far} is {rated}{likely}, by {design}"
    )


def divided(design: Design) -> str:
    """How hosts are used: "12 hosts: 8 x 4 trainers of 8 threads, 3 x 4 embedding servers"."""
    job = design.candidate.job
    types = by_type(job.plan.instances, job.profile)
    said = []
    for role in ("trainer", "embedding_server", "dense_server", "reader"):
        count = len(job.plan.of_role(role))
        if not count:
            continue
        each = job.profile.together(role)
        hosts = -(-count // each)
        name = role.replace("_", " ")
        many = f"{hosts} x {each} {name}s" if each > 1 else f"{count} {name}{'s'[: count != 1]}"
        if role == "trainer":
            threads = job.plan.experiment.training.threads
            batch = job.plan.experiment.training.batch_size
            many += f" of {threads} thread{'s'[: threads != 1]} with batches of {batch:,}"
        own = {what: sum(i.role == role for i in on) for what, on in types.items()}
        where = listed([f"{-(-n // each)} of {what}" for what, n in own.items() if n])
        said.append(f"{many} on {where}" if where else many)
    count = design.candidate.hosts
    return f"{count} host{'' if count == 1 else 's'} ({listed(said)})"


def settings(design: Design) -> str:
    """Further settings that tell it from others. Batches are its own, whatever a step has."""
    return ", ".join(
        f"{key}={written(value)}"
        for key, value in design.candidate.origin.settings.items()
        if value is not None and key != "training.batch_size"
    )


def document(
    answer: Recommended,
    pictures: Mapping[str, doc.Picture] | None = None,
    folders: Sequence[Path] = (),
    runs: Sequence[MeasuredDesign] = (),
) -> doc.Document:
    """All of it. ``runs``: the first designs, as they were measured."""
    wanted, chosen, would = answer.wanted, answer.chosen, answer.would
    first = [chosen, *answer.tied, *answer.others]
    steps = [design.candidate.examples_per_step for design in first]
    alike = max(steps) <= min(steps) * (1.0 + OFF) / (1.0 - OFF)
    left_out = [_EACH] * (wanted.by != "hosts") + [_STEP] * alike
    table = _table(answer, first, left_out)
    tied = [_tied(answer)] if chosen.whole else []
    forbids = [f"{b.what}: {text.rate(b.allows)} examples/s; {b.says}" for b in answer.barriers]
    if answer.met is False and not forbids:
        what = bottleneck((chosen.row or Row()).what_binds)
        forbids = [f"no bound by itself; {phrase(what or 'nothing known')}"]
    enough = [f"{c.says}: at most {text.rate(c.bound)} examples/s" for c in would.enough]
    if answer.met is False and not enough:
        which = "were tried" if would.all_tried else "there was time for"
        enough = [
            f"none of those that {which}, nor two of them together (network cards and uplinks up "
            "to 8 times as fast, numbers as bfloat16, more processes on a host, 8 times the hosts)"
        ]
    elif not would.all_tried:
        enough.append("there was no time to try all changes")
    enough += [would.more_hosts] * bool(would.more_hosts)
    notes = list((chosen.row or Row()).notes or [])
    if chosen.row is None:
        notes.append("Nothing was simulated yet: a bound is what a design may give at most.")
    if any(design.candidate.rounded for design in first):
        notes.append(
            f"Where {WIRE} is bfloat16 numbers travel rounded, which the experiment does not ask "
            "for: not the same work, and no prediction says how it learns. It was tried since "
            "nothing else reaches the target."
        )
    profile = chosen.candidate.job.profile
    rests = [f"the prices of cluster profile {profile.name}, whose origin it does not say"]
    if (known := profile.calibration) is not None:
        rests = [f"the prices of {known.machine}, {known.date}"]
    if alike:
        step = chosen.candidate.origin.examples_per_step
        rests.append(f"a step of the job of about {step:,} examples")
    else:
        notes.append(
            f"One step of the job processes {min(steps):,} to {max(steps):,} examples, by design: "
            "they do not do the same work, and no prediction says how each learns."
        )
    tried = [evaluated(answer.found)]
    if left := answer.found.left_out:
        tried.append(
            f"{len(left):,} that might be better by what is known of them were not simulated in "
            f"full, since as many were as may be; the first: {left[0].kind} on {divided(left[0])}, "
            f"at most {text.rate(left[0].most)} examples/s"
        )
    drawn = [replace(p, where=Where.WRITTEN) for p in (pictures or {}).values()]
    compared = _compared(runs)
    made_by = "Everything here is predicted; nothing was measured"
    if any(run.eps for run in runs):
        made_by = "Measured on emulated hosts of this machine, with modelled compute"
    lines: list[doc.Item] = [
        *compared,
        doc.Lines(stopped(tied), lead="as good" if answer.tied else ""),
        doc.Lines(stopped(forbids), lead="forbids"),
        doc.Lines(stopped(enough) if answer.met is False else [], lead="enough"),
        doc.Lines(stopped([_binds(chosen)]), lead="binds"),
        doc.Lines(stopped([_memory(chosen)]), lead="memory"),
        doc.Lines(stopped(_cost(chosen)), lead="costs"),
        doc.Lines(stopped([*rests, *distances(first)]), lead="rests on"),
        doc.Lines(notes, lead="caveat", mark="off"),
        doc.Lines(stopped(tried), lead="tried"),
        doc.Lines([str(folder) for folder in folders], lead="next"),
    ]
    return doc.Document(
        subject=chosen.candidate.job.loaded.experiment.name,
        kind="a recommendation",
        heading=f"Recommendation: {chosen.candidate.job.loaded.experiment.name}",
        headlines=[headline(answer)],
        items=[
            doc.Chapter("", [table, *lines], Where.TERMINAL),
            doc.Chapter("The designs", [table], Where.WRITTEN, "designs"),
            doc.Chapter("Measured", compared[:1], Where.WRITTEN, "runs"),
            doc.Chapter("Throughput against cost", drawn, Where.WRITTEN, "cost"),
            *(
                doc.Chapter(_TITLES[item.lead], [item], Where.WRITTEN, item.lead.replace(" ", "-"))
                for item in lines
                if isinstance(item, doc.Lines) and item.lead
            ),
        ],
        footer=f". {made_by}.",
        words=glossary(()),
    )


def _compared(runs: Sequence[MeasuredDesign]) -> list[doc.Item]:
    """Prediction beside measurement, and where the order changed."""
    if not runs:
        return []
    held = {True: "yes", False: "no", None: text.NONE}
    columns: dict[str, Sequence[str | doc.Cell]] = {
        "design": [str(run.number) for run in runs],
        "strategy": [run.design.kind for run in runs],
        "predicted": [text.rate(run.design.eps) for run in runs],
        "90 % interval": [text.between(run.design.interval) for run in runs],
        "measured": [text.rate(run.eps) for run in runs],
        "error": [text.percent(run.error, signed=True) for run in runs],
        "within": [held[run.held] for run in runs],
        "AUC": [text.number(run.auc, 4) for run in runs],
        "NE": [text.number(run.normalized_entropy, 4) for run in runs],
    }
    said = order_said(runs)
    said += [f"design {run.number} was not measured: {run.why}" for run in runs if run.why]
    said += [
        f"design {run.number} was measured while this machine disturbed its emulated hosts, and "
        f"says nothing of them ({'; '.join(run.broken)})"
        for run in runs
        if run.broken
    ]
    table = doc.TextTable.filled(columns, ("strategy",))
    return [table, doc.Lines(stopped(said), lead="measured")]


_TITLES = {
    "measured": "What the measurements say of the order",
    "as good": "What cannot be told from it",
    "forbids": "What forbids more",
    "enough": "What would be enough, by the bounds",
    "binds": "What binds",
    "memory": "Memory",
    "costs": "Cost",
    "rests on": "What it rests on",
    "caveat": "Before you trust it",
    "tried": "How it was found",
    "next": "What to do next",
}


def _tied(answer: Recommended) -> str:
    if not answer.tied:
        others = len(answer.others)
        if not others:
            return "nothing else was simulated as long"
        if others == 1:
            return "the other one that was simulated as long is not as good"
        return f"none of the {others} others that were simulated as long is as good"
    few = min((answer.chosen, *answer.tied), key=lambda d: d.candidate.hosts)
    many = len(answer.tied)
    rows = "row 2" if many == 1 else f"rows 2 to {1 + many}"
    said = f"{many} other{'s'[: many != 1]} ({rows} above) cannot be told from it"
    if few is answer.chosen:
        return said
    return f"{said}; with fewer hosts {few.kind} on {divided(few)}"


def _binds(design: Design) -> str:
    binding = (design.row or Row()).what_binds
    busy = [
        f"{name} {text.percent(share)} busy{' (near saturation)' if share >= KNEE else ''}"
        for name, share in busiest(design)
    ]
    said = "; ".join(
        filter(None, [phrase(bottleneck(binding) or "nothing known"), ", ".join(busy)])
    )
    return ". ".join(filter(None, [said, relief(binding, busiest=True)]))


def _memory(design: Design) -> str:
    """The fullest host, and what fills it."""
    known = design.candidate.job.memory()
    if known is None:
        return ""
    parts: dict[str, float] = {}
    for use in known.fullest.uses:
        for part, size in use.parts.items():
            parts[PART_NAMES[part]] = parts.get(PART_NAMES[part], 0.0) + size
    largest = sorted(parts.items(), key=lambda item: -item[1])[:3]
    items = [f"{name} {text.size(size)}" for name, size in largest if size]
    return f"{known.phrase}: {listed(items)}" if items else known.phrase


def _cost(design: Design) -> list[str]:
    """An hour and a billion examples; nothing where a host has no price."""
    rent, eps = design.candidate.rented, design.eps
    if rent is None or not eps:
        return []
    whole = cost.whole_of(BILLION, eps, design.interval, rent)
    billion, sources = cost.amount(whole, whole.cost90), "; ".join(rent.sources)
    return [f"{_hourly(design)} an hour, {billion} for a billion examples ({sources})"]


def _hourly(design: Design) -> str:
    rent = design.candidate.rented
    return text.NONE if rent is None else text.money(rent.per_hour, rent.currency)


def _per_host(design: Design) -> str:
    return text.rate((design.eps or 0.0) / design.candidate.hosts)


def _table(
    answer: Recommended, designs: Sequence[Design], left_out: Sequence[str]
) -> doc.TextTable:
    """One design a row, the one to take first."""
    tied = "those that cannot be told from it, the cheapest first; " * bool(answer.tied)
    order = f"the design to take; {tied}the others, the best first by what was asked for"
    rows = [design.row or Row() for design in designs]
    columns: dict[str, Sequence[str | doc.Cell]] = {
        "strategy": [", ".join(filter(None, (d.kind, settings(d)))) for d in designs],
        "hosts": [str(d.candidate.hosts) for d in designs],
        "predicted": [text.rate(d.eps) for d in designs],
        "90 % interval": [text.between(d.interval) for d in designs],
        "bound": [text.rate(next(iter(d.bounds.values()), None)) for d in designs],
        _EACH: [_per_host(d) for d in designs],
        _HOURLY: [_hourly(d) for d in designs],
        cost.HEAD: [cost.of_row(row) for row in rows],
        "memory": [text.percent(row.memory_share) for row in rows],
        _STEP: [text.exact(d.candidate.examples_per_step) for d in designs],
        "divided": [divided(d).partition("(")[2].removesuffix(")") for d in designs],
    }
    shown = {name: cells for name, cells in columns.items() if name not in left_out}
    return doc.TextTable.filled(shown, ("strategy", "divided"), marks={0: "strong"}, order=order)


@for_any_window
def frontier(answer: Recommended) -> doc.Picture | None:
    """Designs by what they cost and give; the best at each cost joined by a line."""
    designs = answer.found.simulated
    if len(designs) < 2:
        return None
    currencies = {d.candidate.rented.currency if d.candidate.rented else "" for d in designs}
    priced = len(currencies) == 1 and "" not in currencies
    unit = f"{currencies.pop()} an hour" if priced else "hosts"

    def price(design: Design) -> float:
        if priced and design.candidate.per_hour is not None:
            return design.candidate.per_hour
        return float(design.candidate.hosts)

    figure, (axes,) = new_figure(4.2)
    for k, kind in enumerate(dict.fromkeys(d.kind for d in designs)):
        own = [d for d in designs if d.kind == kind]
        axes.plot(
            [price(d) for d in own], [d.eps or 0.0 for d in own], label=kind, linestyle="none",
            color=LINES[k % len(LINES)], marker=MARKERS[k % len(MARKERS)], markersize=5,
            zorder=3,
        )  # fmt: skip
        for design in own:
            said = f"{kind}, {price(design):g} {unit}: {text.rate(design.eps)} examples/s"
            point = axes.plot(
                [price(design)], [design.eps or 0.0], marker="o", markersize=9, alpha=0.0,
                zorder=5,
            )  # fmt: skip
            tip(point, said)
    best, edge = 0.0, []
    for design in sorted(designs, key=lambda d: (price(d), -(d.eps or 0.0))):
        if (design.eps or 0.0) > best:
            best = design.eps or 0.0
            edge.append((price(design), best))
    axes.step(*zip(*edge, strict=True), where="post", color=GRID, linewidth=1.2, zorder=2)
    chosen = answer.chosen
    axes.plot(
        [price(chosen)], [chosen.eps or 0.0], marker="o", markersize=13, fillstyle="none",
        color="#d43f3f", markeredgewidth=1.6, linestyle="none", zorder=4, label="taken",
    )  # fmt: skip
    if answer.wanted.target is not None:
        axes.axhline(answer.wanted.target, color=GRID, linestyle=(0, (4, 3)), linewidth=1.2)
    most = 1.15 * max(best, answer.wanted.target or 0.0)
    axes.set(xlim=(0, None), ylim=(0, most), ylabel="predicted examples/s")
    axes.locator_params(axis="x", integer=unit == "hosts")
    axes.yaxis.set_major_formatter(lambda value, _: text.tick(value))
    dashed = "" if answer.wanted.target is None else "; dashed: the target"
    along(axes, f"{unit} (line: the most up to there{dashed})")
    grid_of(axes)
    legend(figure, 3)
    return finish(figure, "frontier", f"Predicted throughput over {unit}")
