"""Why a prediction is what it is and what would change it, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recsim_train.report import anatomy, what_if


def sentences(summary: Mapping[str, Any]) -> list[str]:
    """Of one prediction's summary, without full stops."""
    return [
        *anatomy.sentences(summary),
        *anatomy.reliability(summary),
        *what_if.sentences(summary),
    ]
