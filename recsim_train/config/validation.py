"""What a validation asks beside its sweep: how often it measures, and what its errors may be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recsim_train.config.units import Count, Duration, Positive, Section, Share

Tier = Literal["machine", "emulated"]
Factor = Annotated[float, Field(gt=0.0)]


class Gates(Section):
    """Bars that the figures of a validation are held to; what is left out is not judged.

    A bar without enough data for its figure does not hold: one run or one configuration that is
    missing is enough of a lack. Errors are raw: predicted / measured - 1, nothing corrected.
    """

    configurations: Positive | None = None
    """At least so many configurations, and every one of the sweep, were measured."""
    raw_median: Share | None = None
    """Median absolute raw error of all runs of all configurations, at most."""
    raw_p90: Share | None = None
    """Nine in ten of the same are at most this."""
    order: Share | None = None
    """Share of pairs of configurations that are predicted in the order measured, at least. Pairs
    count whose measured difference is beyond the noise of both."""
    order_min_pairs: Positive = 100
    """Pairs that ``order`` needs."""
    coverage_least: Share | None = None
    """Share of 90 % intervals that hold the measurement, at least."""
    coverage_most: Share | None = None
    """The same, at most: intervals that hold everything say nothing."""
    half_width: Share | None = None
    """Median half width of the 90 % intervals, relative to the prediction, at most."""
    baseline_factor: Factor | None = None
    """Median absolute errors of both naive baselines (linear scaling from one trainer, the roofline
    bound) are at least this many times ours."""


class Validation(Section):
    """`recsim-train validate`: every point of the sweep is predicted, then measured."""

    tier: Tier = "machine"
    """machine: processes of this machine, all points with one profile; emulated: hosts and links of
    their own, emulated on this machine, which each point's profile may have otherwise."""
    repeats: Positive = 3
    """Measurements of each configuration. Each repeat goes through all of them."""
    seed: Count = 1
    """Of the order in which each repeat goes through them."""
    patience: Duration = 0.0
    """How long runs may wait, all together, where idle cores are more than 5 % faster or slower
    than at the profile's calibration; each waits for a minute at most, and is made then whatever
    they are. 0 s: none waits."""
    gates: Gates = Gates()
