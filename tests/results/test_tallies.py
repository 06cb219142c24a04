"""What a compression says about itself."""

from __future__ import annotations

from recsim_train.trace.facts import Compressed
from recsim_train.workload.compression import Tally, compressed


def test_ratios_in_values_and_on_the_wire() -> None:
    """Of 1,000 values of 4 bytes 40 are sent, each with a place of 4 bytes."""
    found = Tally()
    found.add(600, 30, 2400, 240)
    found.add(400, 10, 1600, 80)
    said = found.figures()
    assert said == Compressed(
        values=1000, kept=40, dense_bytes=4000, sent_bytes=320,
        value_compression=25.0, wire_compression=12.5, density=0.04,
    )  # fmt: skip
    assert Tally().figures().wire_compression == 1.0


def test_loops_add_up() -> None:
    one, other = Tally(100, 10, 400, 80), Tally(100, 30, 400, 240)
    found = compressed([{"gradients": one}, {"gradients": other, "activations": one}])
    assert list(found) == ["activations", "gradients"]
    assert found["gradients"].wire_compression == 800 / 320
    assert one.sent_bytes == 80
