"""What a reader must know before trusting a report: every comparison's caveats, each once."""

from __future__ import annotations

from recsim_train.report.caveats import busy
from recsim_train.report.compare import Findings


def doubts(findings: Findings) -> list[tuple[str, list[str]]]:
    """(sentence, labels of the comparisons it belongs to), in order of the comparisons.

    Where several comparisons were measured on a busy machine, one sentence says so of all.
    """
    comparisons = findings.comparisons
    everything = [c.label for c in comparisons]
    slowed = {c.label: sentence for c in comparisons for sentence in busy(c.all_real)}
    found: dict[str, list[str]] = {}
    replaced: set[str] = set()
    if len(slowed) > 1:
        # profiles may share a measurement, which counts once
        measured = {real.path: real for c in comparisons for real in c.all_real}
        (joint,) = busy(list(measured.values()))
        found[joint] = list(slowed)
        replaced = set(slowed.values())
    for c in comparisons:
        for warning in c.warnings:
            if warning not in replaced:
                found.setdefault(warning, []).append(c.label)
    beyond = [c.label for c in comparisons if c.unexplained]
    if beyond:
        subject = f"{len(beyond)} of {len(comparisons)} errors are"
        if len(comparisons) == 1:
            subject = "The error is"
        found[
            f"{subject} larger than the intervals of prediction and measurement explain: the "
            "simulator leaves something out, or the machine has changed since its calibration."
        ] = beyond
    return [*((sentence, everything) for sentence in findings.left_out), *found.items()]
