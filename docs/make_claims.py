"""Writes docs/claims.md from the runs of the published claims.

recsim-train simulate experiments/claims/ --out runs-claims
python docs/make_claims.py runs-claims
"""

from __future__ import annotations

import sys
from pathlib import Path

from recsim_train.report.claim_text import claim_lines
from recsim_train.report.claims import MARKS, judge_all

TARGET = Path(__file__).with_name("claims.md")

HEAD = """\
# Published claims beside our predictions

Made by `python docs/make_claims.py` from simulated runs; edit the experiments in
`experiments/claims/`, not this file:

```
recsim-train simulate experiments/claims/ --out runs-claims
recsim-train report runs-claims --out report-claims
python docs/make_claims.py runs-claims
```

These are predictions of the simulator for reconstructed systems on a reconstructed cluster, not
measurements. The papers' full texts were not at hand, so a verdict judges our reconstruction in
the setting named, not the paper: "not reproduced" means that this reconstruction does not show
the effect there. An input
or a limit that was chosen with a result in view stands under "Fitted inputs".

- reproduced: every expectation of the claim is met; partly: the effect goes the right way and
  reaches at least half of what is expected, or the claim's first check is met and another is
  not; not reproduced: neither.
- The first check of each claim is the claim itself. "for context" has no expectation.
"""

LAWS = """\

## The laws

Derived by algebra (`recsim_train/workload/laws.py`), none is a paper's own formula:

- DES sends more than a row server from n* = U_w (w + 2) / (b n_out) trainers on: U_w distinct
  rows of w numbers in a worker's batch of b examples, n_out numbers all-reduced per example.
- FR-EASGD-k's straight line meets its plateau at n_max (1 + 2W/(Ckt)) trainers, n_max = S C k t /
  (m W): S sync servers of C bytes/s, k iterations of t seconds between exchanges, m threads, W
  bytes of dense parameters.
- S-EASGD's sync gap is m (2 (latency + W / min(C, S C / n))) / t iterations of a trainer where
  all shadows use one way of the servers' network at a time, and up to half of that where the two
  ways overlap.
"""


def build(runs: Path) -> str:
    """The whole page. Raises SystemExit where the folder holds no claims."""
    claims = judge_all([runs])
    if not claims:
        raise SystemExit(f"{runs}: no claims' runs here")
    marks = "\n".join(f"- {mark}: {meaning}" for mark, meaning in MARKS.items())
    table = "\n".join(claim_lines(claims))
    return f"{HEAD}\nMarks:\n\n{marks}\n\n{table}\n{LAWS}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python docs/make_claims.py RUNS_FOLDER")
    TARGET.write_text(build(Path(sys.argv[1])), encoding="utf-8")
