"""The page: everything of a report in one file that needs no network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from recsim_train import __version__
from recsim_train.report import alone, anatomy, cuts, limits, text, what_if
from recsim_train.report.caveats import stated
from recsim_train.report.claim_text import headline, rows, sentences
from recsim_train.report.claims import Judged
from recsim_train.report.compare import Findings
from recsim_train.report.doubts import doubts
from recsim_train.report.drawing import Picture, colour, svg_for_page
from recsim_train.report.explain import name_of
from recsim_train.report.glossary import glossary
from recsim_train.results.rundir import RunRecord

MOST_HEADLINES = 6


def page(
    findings: Findings,
    *,
    pictures: Mapping[str, Picture],
    traces: Mapping[str, tuple[str, Mapping[str, str]]],
    commands: Sequence[str],
    claims: Sequence[Judged] = (),
) -> str:
    """The HTML page.

    ``pictures``: by name; those of one comparison end in "-" and its number from 1.
    ``traces``: file name and what it leaves out, by the same number. ``commands``: how to make
    all of it anew. Everything that came from outside is escaped.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("recsim_train.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    environment.globals.update(
        t=text, name_of=name_of, colour=colour, calibration=what_if.calibration
    )
    # Our own drawings are the only markup let through unescaped.
    figures = {
        name: {"title": p.title, "svg": Markup(svg_for_page(p))} for name, p in pictures.items()
    }
    comparisons = [
        {
            "number": number,
            "c": c,
            "p": c.simulated.summary,
            "m": c.real.summary,
            "trace": traces.get(str(number)),
            "limits": [
                *_limits(c.simulated.summary),
                *(f"{s}." for s in (*c.net, *c.compression)),
            ],
            "syncing": all(
                (r.summary.get("synchronisation") or {}).get("sync_gap")
                for r in (c.simulated, c.real)
            ),
        }
        for number, c in enumerate(findings.comparisons, start=1)
    ]
    effects = {
        e
        for c in findings.comparisons
        for r in (c.simulated, c.real)
        for e in r.summary["time_by_effect"]
    }
    headlines = alone.headlines(findings)
    return environment.get_template("page.html.j2").render(
        title=title(findings, claims),
        claims=[(c, headline(c), list(rows(c)), sentences(c)) for c in claims],
        headlines=headlines[:MOST_HEADLINES],
        more_headlines=max(0, len(headlines) - MOST_HEADLINES),
        only_unpaired=f"{alone.UNPAIRED}.",
        findings=findings,
        summary=findings.document()["summary"],
        comparisons=comparisons,
        unpaired=_alone(findings),
        figures=figures,
        faults=[(c, b) for c in findings.comparisons for b in c.faults],
        warnings=doubts(findings),
        environments=environments(findings),
        commands=commands,
        glossary=glossary(effects),
        version=__version__,
    )


def unbroken(sentence: str) -> str:
    """Keep numbers with their units and signs on one line."""
    kept = re.sub(
        r"(\d) (%|[kMG]?examples/s|ms|s|µs|ns|[KMGT]iB|B)(?!\w)", "\\1\u00a0\\2", sentence
    )
    return kept.replace("± ", "±\u00a0")


def title(findings: Findings, claims: Sequence[Judged] = ()) -> str:
    """The experiments that are compared, and the claims that are checked."""
    names = dict.fromkeys(str(c.simulated.manifest.get("experiment")) for c in findings.comparisons)
    names |= dict.fromkeys(str(u.record.manifest.get("experiment")) for u in findings.unpaired)
    names |= dict.fromkeys(c.made.name for c in claims)
    return ", ".join(names)


def _limits(summary: Mapping[str, Any]) -> list[str]:
    """What binds a prediction, what nothing can beat, and what would change it."""
    bottleneck, bound = summary.get("bottleneck"), summary.get("bound_eps")
    found = [f"What binds the prediction: {bottleneck}."] if bottleneck else []
    if bound and not anatomy.bounds(summary):
        found.append(f"On this profile it could never exceed {text.rate(bound)} examples/s.")
    return found + [f"{sentence}." for sentence in limits.sentences(summary)]


def _alone(findings: Findings) -> list[dict[str, Any]]:
    """Runs without a partner, with what their own world says of them."""
    return [
        {
            "record": u.record,
            "reason": u.reason,
            "limits": [
                *_limits(u.record.summary),
                *(f"{s}." for s in cuts.sentences(u.record)),
            ],
            "notes": [*stated(u.record), *cuts.cautions(u.record)],
        }
        for u in findings.unpaired
    ]


def environments(findings: Findings) -> list[tuple[str, list[tuple[str, str]]]]:
    """One card per profile and per machine: (title, rows)."""
    cards: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for c in findings.comparisons:
        for record in (*c.all_simulated, *c.all_real):
            card = _profile_card(record) if record.world == "simulated" else _machine_card(record)
            cards.setdefault(repr(card), card)
    return list(cards.values())


def _profile_card(record: RunRecord) -> tuple[str, list[tuple[str, str]]]:
    cluster = record.manifest.get("cluster") or {}
    calibration = cluster.get("calibration") or {}
    host = (cluster.get("hosts") or {}).get("default") or {}
    rows = {
        "profile": cluster.get("name"),
        "calibrated": calibration.get("date") or "no: prices are assumed",
        "on": calibration.get("machine"),
        "cores per host": host.get("cores"),
        "memory per host": text.size(host.get("memory")) if host.get("memory") else None,
        "network": f"{host['nic'] * 8 / 1e9:.3g} Gbit/s" if host.get("nic") else None,
        "latency": text.seconds((cluster.get("network") or {}).get("latency")),
        "load while calibrating": calibration.get("background_load"),
        "calibrated with": _versions(calibration.get("versions")),
        "simulated with": _versions(record.environment.get("versions")),
    }
    return "Prediction", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _machine_card(record: RunRecord) -> tuple[str, list[tuple[str, str]]]:
    e = record.environment
    memory = e.get("memory_bytes")
    load = (record.summary.get("facts") or {}).get("load_average_before", e.get("load"))
    rows = {
        "machine": e.get("machine"),
        "host": e.get("host"),
        "system": e.get("system"),
        "memory": text.size(memory) if memory else None,
        "date": e.get("date"),
        "load before": f"{load:.2f} on {e.get('cores')} cores" if load is not None else None,
        "revision": e.get("revision"),
        "versions": _versions(e.get("versions")),
    }
    return "Measurement", [(k, str(v)) for k, v in rows.items() if v not in (None, "")]


def _versions(versions: Any) -> str:
    if not isinstance(versions, dict):
        return ""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
