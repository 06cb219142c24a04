"""How many entries pass DCT's thresholds, by how often they are renewed.

python benchmarks/dct_thresholds.py [ITERATIONS]

One process, Downpour with SGD on the generator's data, so that nothing but the gradients decides.
Prints, for each setting, the entries of thresholded tensors that were sent over those asked for:
1 is what the simulator assumes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from recsim_train.config.experiment import (
    Data,
    Experiment,
    Model,
    StrategyChoice,
    Synthetic,
    Table,
    Training,
)
from recsim_train.executor.process.launch import execute
from recsim_train.placement.build import build_plan
from recsim_train.workload.compression import layout

MODEL = Model(
    embedding_dim=16,
    bottom_mlp=(128, 64, 16),
    top_mlp=(128, 64, 1),
    tables=tuple(Table(rows=1000) for _ in range(26)),
)
SETTINGS = [(0.01, refresh, ramp) for refresh in (10, 50, 1000) for ramp in (False, True)] + [
    (0.1, 1000, False),
    (0.1, 1000, True),
]


def excess(density: float, refresh: int, ramp: bool, iterations: int) -> float:
    """Entries sent / entries asked for, over all iterations."""
    part = {"kind": "dct", "density": density, "refresh": refresh, "ramp": ramp}
    choice = StrategyChoice(kind="flat_ps", options={"compression": part})
    spec = Experiment(
        name="dct_thresholds",
        model=MODEL,
        data=Data(eval_rows=0, synthetic=Synthetic(rows=200_000)),
        training=Training(batch_size=256, steps=iterations, warmup_steps=0),
        strategies=(choice,),
    )
    with tempfile.TemporaryDirectory() as folder:
        outcome = execute(build_plan(spec, choice), staging=Path(folder))
    counted = outcome.facts.compression
    whole = layout(MODEL).small_elements * iterations
    sent = counted["gradients"].kept - whole
    return sent / (layout(MODEL).kept(density) * iterations)


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    print(f"{steps} iterations")
    for chosen in SETTINGS:
        density, refresh, ramp = chosen
        ratio = excess(*chosen, steps)
        print(
            f"density {density:.0%}  refresh {refresh:5}  ramp {ramp!s:5}  sent/asked {ratio:.2f}"
        )
