"""Which runs are a claim's own."""

from __future__ import annotations

from typing import cast

from recsim_train.config.claim import Claim
from recsim_train.results.claims import Change, ClaimRuns


def test_runs_with_a_changed_input_are_the_claims_too() -> None:
    changes = (Change("luck", "x2", {"a": "third", "b": "second"}),)
    claim = cast(Claim, None)  # what is claimed does not matter here
    made = ClaimRuns("c", "c.yaml", claim, {"a": "first", "b": "second"}, changes)
    assert made.run_ids == {"first", "second", "third"}
