"""Writes docs/claims.md from the runs of the published claims.

recsim-train simulate experiments/claims/ --out runs-claims
python docs/make_claims.py runs-claims
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

from recsim_train.report.claim_text import published
from recsim_train.report.claims import MARKS, judge_all
from recsim_train.report.markdown import render

TARGET = Path(__file__).with_name("claims.md")

HEAD = """\
# Published claims beside our predictions

Made by `python docs/make_claims.py` from simulated runs; edit the experiments in
`experiments/claims/`, not this file. Its figures are those of the version of DATE; later ones
predict others, which the first command gives:

```
recsim-train simulate experiments/claims/ --out runs-claims
recsim-train report runs-claims --out report-claims
python docs/make_claims.py runs-claims
```

These are predictions of the simulator for reconstructed systems on a reconstructed cluster, not
measurements. The papers' full texts were not at hand, so a verdict judges our reconstruction in
the setting named, not the paper: "not reproduced" means that this reconstruction does not show
the effect there. The first check of each claim is the claim itself.

- reproduced: every expectation of the claim is met.
- partly: the effect goes the right way and reaches at least half of what is expected, or the
  claim's first check is met and another is not.
- not reproduced: neither.
- not comparable: a speed is compared where a trainer computes on fewer cores than its host has.
  A strategy in lock-step computes on all of them by operations that run on several threads.
- follows from the input: an input that was chosen for the claim sets the figure by construction.
- for context: nothing is expected.

What changed on 2026-11-22: strategies in lock-step used to compute on one core of each host, so
that three claims could not be judged. Now all cores compute on both sides, in lock-step by
operations on 20 or 24 threads. How operations scale over more than two cores was never measured:
the profile has a guess, and the figures hinge on it. Requests go over TCP, with prices measured
anew on a slower day, and nobody waits until a push has arrived. First figures before and after:
DCT's time 1.5 % and 9.6 % (at 1 Gbit/s 52.5 % and 82.6 %); Hierarchical with a cut net 0.034x and
0.21x of flat's examples/s, without a cut 0.099x and 0.70x; ScaleFreeCTR 1.01x and 0.78x. None of
the three is reproduced. ShadowSync's linearity stands; its sync gap, 21 of 33 iterations by the
law before, is 11 of 23, which is below what the law allows even where both ways of the servers'
network overlap. Why is not yet known.

Rules that `simulate` holds every claim to; a file that breaks one is refused:

- Where a figure should be near another, the tolerance is stated, and whose it is. It is set
  before the first run and never widened after one.
- "Up to x" has no tolerance: x is reached somewhere in a grid of settings that the file states
  beforehand, or it is not reproduced.
- Inputs chosen in view of a result or of the claim itself stand under "Fitted inputs": what the
  claim changes in the cluster profile, and what sets a compression. The verdict says that there
  are some.
- Bytes and compression are worked out by formulas in the simulator, so no derived formula of the
  same counts is held against them: that could not fail.
- What a setting costs in learning quality stands in the verdict's own line.
"""

LAWS = """\

## The laws

Derived by algebra (`recsim_train/workload/laws.py`), none is a paper's own formula:

- FR-EASGD-k's straight line meets its plateau at n_max (1 + 2W/(Ckt)) trainers, n_max = S C k t /
  (m W): S sync servers of C bytes/s, k iterations of t seconds between exchanges, m threads, W
  bytes of dense parameters. t is the first run's own and cancels: what can be missed is the
  plateau.
- S-EASGD's sync gap is m (2 (latency + W / min(C, S C / n))) / t iterations of a trainer where
  all shadows use one way of the servers' network at a time, and down to half of that where the
  two ways overlap. t is the run's own and cancels: what can be missed is the time of a round.
"""


def build(runs: Path) -> str:
    """The whole page. Raises SystemExit where the folder holds no claims."""
    claims = judge_all([runs])
    if not claims:
        raise SystemExit(f"{runs}: no claims' runs here")
    marks = "\n".join(f"- {mark}: {meaning}" for mark, meaning in MARKS.items())
    table = "\n".join(render([published(claims)])[:-1])
    head = HEAD.replace("DATE", f"{date.today():%-d %B %Y}")
    return f"{head}\nMarks:\n\n{marks}\n\n{table}\n{LAWS}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/make_claims.py RUNS_FOLDER")
    TARGET.write_text(build(Path(sys.argv[1])), encoding="utf-8")
