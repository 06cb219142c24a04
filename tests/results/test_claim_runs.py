"""Which runs are a claim's own."""

from __future__ import annotations

from recsim_train.config.claim import Check, Claim
from recsim_train.results.claims import Change, ClaimRuns


def test_runs_with_a_changed_input_are_the_claims_too() -> None:
    check = Check(says="a over b", measure="eps", form="ratio", of=("a",), over=("b",))
    claim = Claim(
        statement="a is faster",
        source="nobody",
        mark="recalled",
        setting="two runs",
        hinges_on="chance",
        variants={"a": (), "b": ()},
        checks=(check,),
    )
    changes = (Change("luck", "x2", {"a": "third", "b": "second"}),)
    made = ClaimRuns("c", "c.yaml", claim, {"a": "first", "b": "second"}, changes)
    assert made.run_ids == {"first", "second", "third"}
