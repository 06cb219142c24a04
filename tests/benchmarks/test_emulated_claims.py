"""benchmarks/emulated_claims.py: its settings can be run, and verdicts follow from the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import recsim_train
from recsim_train.executor.emulation.layout import layout_of
from tests.modules import loaded

ROOT = Path(__file__).parents[2]
BASE = ROOT / "tests" / "frozen-2core.yaml"
claims: Any = loaded(ROOT / "benchmarks" / "emulated_claims.py")


def test_all_settings_can_be_emulated(tmp_path: Path) -> None:
    whole = claims.experiment("")
    for point in whole["sweep"]["points"]:
        point["cluster"]["extends"] = str(BASE)
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(whole))
    for job in recsim_train.load(tmp_path / "claims.yaml").jobs():
        assert layout_of(job.plan, job.profile).hosts


def validation(speed: Any) -> dict[str, Any]:
    """One whose runs are as fast as ``speed`` says of a place, and predicted so."""
    rows, predictions, runs = [], [], []
    for number, place in enumerate(claims.places()):
        key, eps = str(number), speed(place)
        predictions.append({"key": key})
        trainers = place.made["roles"]["trainers"]
        rows.append(
            {
                "key": key, "model": place.claim, "trainers": trainers, "predicted": 2.0 * eps,
                "measured": eps,
            }
        )  # fmt: skip
        runs += [{"key": key, "frame_bytes": 1e6 / eps}, {"key": key, "frame_bytes": None}]
    return {"rows": rows, "predictions": predictions, "runs": runs}


def test_the_page_has_the_published_validation_s_table() -> None:
    results = ROOT / "benchmarks" / "results"
    names = ("claims-2026-11-28", "claims-shadowsync-2026-11-28")
    kept = [json.loads((results / name / "validation.json").read_text("utf-8")) for name in names]
    page = (ROOT / "docs" / "explain" / "claims.md").read_text(encoding="utf-8")
    rows = list(claims.verdicts(kept))
    assert len(rows) == len(claims.CLAIMS)
    for cells in rows:
        assert f"| {' | '.join(cells)} |" in page


def test_verdicts_are_those_of_the_measurement() -> None:
    def equal(place: Any) -> float:
        return 100.0

    for _, _, _, _, verdict in claims.verdicts([validation(equal)]):
        assert verdict == "not reproduced"

    def as_published(place: Any) -> float:
        faster = {"DES": 4.0, "flat PS with DCT": 1.7, "hierarchical": 1.5}
        if place.claim == "shadowsync":
            return float(place.at ** (1.0 if place.curve.startswith("Shadow") else 0.6))
        return 1.2 if place.curve.startswith("cache") else faster.get(place.curve, 1.0)

    made = {says: verdict for says, *_, verdict in claims.verdicts([validation(as_published)])}
    verdicts = dict(zip(claims.CLAIMS, made.values(), strict=True))
    assert verdicts.pop("hierarchical") == "partly"  # 1.5 of 1.9
    assert set(verdicts.values()) == {"reproduced"}


def test_settings_that_do_not_count_are_left_out_with_what_they_are_compared_with() -> None:
    whole = validation(lambda place: 100.0 * (1.5 if place.at == 12 else 1.0))
    for place, row in zip(claims.places(), whole["rows"], strict=True):
        if place.claim == "shadowsync" or (place.claim == "des" and place.curve == "DES"):
            row["measured"] = None if place.claim == "shadowsync" or place.at == 12 else 100.0
    curves = claims.curves_of(whole, "measured")
    assert "shadowsync" not in curves
    assert {curve.at for curve in curves["des"].values()} == {(2, 4, 8)}
    made = [row[-1] for row in claims.verdicts([whole])]
    assert made[:2] == ["not measured", "not measured"]
    assert "not measured" not in made[2:]


def test_of_several_validations_a_claim_s_last_one_counts() -> None:
    slow, fast = validation(lambda place: 100.0), validation(lambda place: 200.0)
    some = [n for n, place in enumerate(claims.places()) if place.claim == "dct"]
    keys = {str(n) for n in some}
    part = {name: [one for one in fast[name] if one["key"] in keys] for name in fast}
    curves = claims.all_curves([slow, part], "measured")
    assert set(curves) == {place.claim for place in claims.places()}
    for claim, of_claim in curves.items():
        for curve in of_claim.values():
            assert set(curve.speed) == {200.0 if claim == "dct" else 100.0}


def test_figures_by_hand() -> None:
    curves = {
        "a": claims.Curve((1.0, 2.0, 4.0), (10.0, 20.0, 40.0), (5.0, 5.0, 1.0)),
        "b": claims.Curve((1.0, 2.0, 4.0), (10.0, 16.0, 40.0), (10.0, 10.0, 10.0)),
    }
    assert claims.faster("a", "b")(curves) == 1.25
    assert claims.saved("a", "b")(curves) == pytest.approx(0.2)
    assert claims.less_sent("a", "b")(curves) == 0.9
    assert claims.scales("a")(curves) == pytest.approx(1.0)
