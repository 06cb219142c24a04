"""A recommendation as a document: one screen on the terminal, and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from recsim_train.config.sweep import written
from recsim_train.designs.answer import Recommended, busiest, evaluated
from recsim_train.designs.distance import distances
from recsim_train.designs.measured import MeasuredDesign, order_said
from recsim_train.designs.searching import Design
from recsim_train.designs.space import OFF
from recsim_train.placement.hosts import by_type
from recsim_train.report import cost, text
from recsim_train.report import document as doc
from recsim_train.report.document import Where, stopped
from recsim_train.report.naming import bottleneck, glossary, phrase
from recsim_train.report.what_if import KNEE, relief
from recsim_train.report.winner import listed
from recsim_train.results.row import binding_of
from recsim_train.results.whole import BILLION, whole_of
from recsim_train.sim.host.memory import PART_NAMES

_HOURLY, _EACH, _STEP = "an hour", "examples/s per host", "examples a step"
HEADS = (
    "strategy", "hosts", "predicted", "90 % interval", "bound", _EACH, _HOURLY, cost.HEAD, "memory",
    _STEP, "divided",
)  # fmt: skip
MEASURED_HEADS = (
    "design", "strategy", "predicted", "90 % interval", "measured", "error", "within",
)  # fmt: skip
_WORDS = ("strategy", "divided")


def headline(answer: Recommended) -> str:
    """Yes or no, and what to take; without a full stop."""
    wanted, chosen = answer.wanted, answer.chosen
    rated = text.predicted(chosen.eps, chosen.interval)
    design = f"{chosen.kind} on {divided(chosen)}"
    count, so_far = answer.found.in_full, ""
    if answer.found.unfinished:
        full = f"{count} design{'s'[: count != 1]}" if count else "nothing"
        so_far = f" so far, with {full} simulated in full,"
    if wanted.target is None:
        figure = {
            "cost": f"{cost.of_row(chosen.row or {})} for a billion examples",
            "hosts": f"{_per_host(chosen)} {_EACH}",
        }.get(wanted.by)
        best = f"The best{so_far} is {design}: it gives" if so_far else f"{design} gives"
        return f"{best} {rated} examples/s" + (
            f": {figure}, {wanted.means} found" if figure else ""
        )
    target = text.rate(wanted.target)
    if answer.met:
        most = {"cost": "cheapest", "hosts": "smallest", "throughput": "fastest"}[wanted.by]
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
    folders: Sequence[Path] = (),
    pictures: Mapping[str, doc.Picture] | None = None,
    runs: Sequence[MeasuredDesign] = (),
) -> doc.Document:
    """All of it. ``runs``: the first designs, as they were measured."""
    wanted, chosen = answer.wanted, answer.chosen
    first = [chosen, *answer.tied, *answer.others]
    table = doc.TextTable.of(HEADS, map(_cells, first), _WORDS, marks={0: "strong"})
    steps = [design.candidate.examples_per_step for design in first]
    alike = max(steps) <= min(steps) * (1.0 + OFF) / (1.0 - OFF)
    unpriced = all(design.candidate.rented is None for design in first)
    left_out = [_HOURLY, cost.HEAD] * unpriced + [_EACH] * (wanted.by != "hosts") + [_STEP] * alike
    table = replace(table, columns=[c for c in table.columns if c.name not in left_out])
    tied = [_tied(answer)] if chosen.whole else []
    forbids = [f"{b.what}: {text.rate(b.allows)} examples/s; {b.says}" for b in answer.barriers]
    if answer.met is False and not forbids:
        what = bottleneck(binding_of(chosen.row or {}))
        forbids = [f"no bound by itself; {phrase(what or 'nothing known')}"]
    enough = [f"{c.says}: at most {text.rate(c.bound)} examples/s" for c in answer.changes]
    if answer.met is False and not enough:
        which = "were tried" if answer.all_tried else "there was time for"
        enough = [
            f"none of those that {which}, nor two of them together (network cards and uplinks up "
            "to 8 times as fast, numbers as bfloat16, more processes on a host, 8 times the hosts)"
        ]
    elif not answer.all_tried:
        enough.append("there was no time to try all changes")
    notes = list((chosen.row or {}).get("notes") or [])
    rests = _rests(chosen)
    if alike:
        step = chosen.candidate.origin.examples_per_step
        rests.append(f"a step of the job of about {step:,} examples")
    else:
        notes.append(
            f"One step of the job processes {min(steps):,} to {max(steps):,} examples, by design: "
            "they do not do the same work, and no prediction says how each learns."
        )
    tried = [evaluated(answer.found)]
    if answer.open:
        tried.append(f"{answer.open:,} not simulated in full might be better by their bounds alone")
    drawn = [replace(p, where=Where.WRITTEN) for p in (pictures or {}).values()]
    compared = _compared(runs)
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
            *_chapters(lines),
        ],
        footer=_footer(runs),
        words=glossary(()),
    )


def _footer(runs: Sequence[MeasuredDesign]) -> str:
    if any(run.eps for run in runs):
        return ". Measured on emulated hosts of this machine, with modelled compute."
    return ". Everything here is predicted; nothing was measured."


def _compared(runs: Sequence[MeasuredDesign]) -> list[doc.Item]:
    """Prediction beside measurement, and where the order changed."""
    if not runs:
        return []
    rows = [
        [
            str(run.number),
            run.design.kind,
            text.rate(run.design.eps),
            text.between(run.design.interval),
            text.rate(run.eps),
            text.percent(run.error, signed=True),
            {True: "yes", False: "no", None: text.NONE}[run.held],
        ]
        for run in runs
    ]
    said = order_said(runs)
    said += [f"design {run.number} was not measured: {run.why}" for run in runs if run.why]
    said += [
        f"design {run.number} was measured while this machine disturbed its emulated hosts, and "
        f"says nothing of them ({'; '.join(run.broken)})"
        for run in runs
        if run.broken
    ]
    table = doc.TextTable.of(MEASURED_HEADS, rows, ("strategy",))
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


def _chapters(lines: Sequence[doc.Item]) -> list[doc.Chapter]:
    return [
        doc.Chapter(_TITLES[item.lead], [item], Where.WRITTEN, item.lead.replace(" ", "-"))
        for item in lines
        if isinstance(item, doc.Lines) and item.lead
    ]


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
    binding = binding_of(design.row or {})
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
    whole = whole_of(BILLION, eps, design.interval, rent)
    billion, sources = cost.amount(whole, whole.cost90), "; ".join(rent.sources)
    return [f"{_hourly(design)} an hour, {billion} for a billion examples ({sources})"]


def _rests(design: Design) -> list[str]:
    """Whose prices a prediction has."""
    profile = design.candidate.job.profile
    known = profile.calibration
    if known is None:
        return [f"the prices of cluster profile {profile.name}, whose origin it does not say"]
    return [f"the prices of {known.machine}, {known.date}"]


def _hourly(design: Design) -> str:
    rent = design.candidate.rented
    return text.NONE if rent is None else text.money(rent.per_hour, rent.currency)


def _per_host(design: Design) -> str:
    return text.rate((design.eps or 0.0) / design.candidate.hosts)


def _cells(design: Design) -> list[str]:
    row = design.row or {}
    more = settings(design)
    return [
        f"{design.kind}{', ' if more else ''}{more}",
        str(design.candidate.hosts),
        text.rate(design.eps),
        text.between(design.interval),
        text.rate(next(iter(design.bounds.values()), None)),
        _per_host(design),
        _hourly(design),
        cost.of_row(row),
        text.percent(row.get("memory_share")),
        text.exact(design.candidate.examples_per_step),
        divided(design).partition("(")[2].removesuffix(")"),
    ]
