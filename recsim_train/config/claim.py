"""A published claim beside the experiment that checks it: what is said, compared and expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from recsim_train.config.problems import KeyPath
from recsim_train.config.units import Section, Share

Origin = Literal["found", "derived", "recalled", "ours"]
Text = Annotated[str, Field(min_length=1)]
Changes = Annotated[dict[str, tuple[Text, ...]], Field(min_length=1)]
"""Overrides as ``--set`` takes them, by what they do."""
COMPRESSION = ("value_compression", "wire_compression")
COUNTED = ("bytes", *COMPRESSION)
"""Measures that the simulator works out from sizes and settings alone; no simulated time enters."""


class Check(Section):
    """One figure made of the variants' runs, and what it should be."""

    says: Text
    """What is compared with what, in words: the baseline is named here."""
    mark: Origin = "ours"
    """Where the expectation comes from: found in a public text; derived by algebra; recalled, not
    checked (a reconstruction); ours (a reconstruction)."""
    measure: Literal["eps", "time", "bytes", "value_compression", "wire_compression", "sync_gap"]
    """Of each run. eps: examples/s; time: seconds per example; bytes: sent per example, a ring
    all-reduce at 2(n-1)/n of its vector; compression: the run's own counts; sync_gap: its mean."""
    form: Literal["value", "ratio", "saved", "exponent", "knee", "crossover"] = "value"
    """What is made of it. value: that of ``of``; ratio: of / over; saved: 1 - of / over;
    exponent: the slope of log(measure) over log(along); knee: where a line through the first of
    ``of`` meets the level of the last; crossover: where of / over passes 1, interpolated."""
    of: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Variants that are judged."""
    over: tuple[Text, ...] = ()
    """Variants that they are compared with, one for each of ``of``."""
    along: str = ""
    """The numeric setting that differs between them: exponent, knee and crossover."""
    effects: tuple[Text, ...] = ()
    """bytes: the effects that count; none: all."""
    content: Literal["gradients", "activations", "activation_gradients"] = "gradients"
    """compression: of what."""
    near: float | None = None
    """The figure should be this, within the tolerance."""
    up_to: float | None = None
    """Some point of the claim's grid should reach this: what "up to" says. It has no tolerance."""
    at_least: float | None = None
    """The figure should be at least this."""
    at_most: float | None = None
    """The figure should be at most this."""
    law: Literal["none", "easgd_knee", "easgd_sync_gap"] = "none"
    """A derived formula that says what the figure should be near; see docs/claims.md."""
    tolerance: Share | None = None
    """Of ``near`` and ``law``, which need one: largest relative deviation. Stated before the first
    run, never widened after one."""
    tolerance_from: str = ""
    """Where the tolerance comes from: the claim's own wording, the law, or us."""
    follows_from: str = ""
    """compression: the fitted input that sets the figure by construction. An expectation is then
    neither met nor missed: the verdict is "follows from the input"."""
    quality: str = ""
    """What the setting costs in learning quality, and where that was measured: it stands in the
    verdict's own line."""


class Sensitivity(Section):
    """An input that is changed, to see what the first check makes of it."""

    input: Text
    """Its name in words."""
    changes: Changes
    """Overrides by what they do ("x2"), each as ``--set`` takes it, on top of the variant's own."""


class Claim(Section):
    """A published claim, how it is checked, and what the answer leans on."""

    statement: Text
    """What is claimed, in words."""
    source: Text
    """Who claims it."""
    mark: Origin
    """How we know the statement: found in a public abstract, page or file; derived; recalled, not
    checked; ours. What is recalled or ours is shown as a reconstruction."""
    published: float | None = None
    """The published number, if there is one: a factor, or a share as a fraction of one."""
    setting: Text
    """What is simulated, and which of it is a reconstruction."""
    hinges_on: Text
    """The inputs on which the answer turns."""
    fitted: dict[str, Text]
    """Inputs that were chosen in view of a result or of the claim itself, and how; by setting
    where there is one. ``{}``: nothing was fitted."""
    common: tuple[Text, ...] = ()
    """Overrides of every variant."""
    variants: Annotated[dict[str, tuple[Text, ...]], Field(min_length=1)]
    """Runs by name, each a list of overrides as ``--set`` takes them; one strategy each."""
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    """The first is the claim itself, others are its parts or its context."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """Inputs that are varied; the first check's variants are simulated again for each change."""
    grid: dict[str, Changes] = Field(default_factory=dict)
    """Settings in which ``up_to`` is judged, stated before the first run: by the input's name, its
    values with their overrides. Every combination is a point."""


_PAIRED = ("ratio", "saved", "crossover")
_ALONG = {"exponent": 2, "knee": 2, "crossover": 2}
_LAWS = {"easgd_knee": ("eps", "knee"), "easgd_sync_gap": ("sync_gap", "value")}


def expectations(check: Check) -> dict[str, float | None]:
    """What the check expects, by the field that says so; a law's figure is None here."""
    stated = {k: getattr(check, k) for k in ("near", "up_to", "at_least", "at_most")}
    laws = {"law": None} if check.law != "none" else {}
    return {k: v for k, v in stated.items() if v is not None} | laws


def claim_problems(claim: Claim) -> Iterator[tuple[KeyPath, str]]:
    """(place within the section, sentence) of what no single field can say."""
    for index, check in enumerate(claim.checks):
        at: KeyPath = ("checks", index)
        for path, message in (*_shape(check, claim), *_honesty(check, claim)):
            yield (*at, *path), message
    for place, override in enumerate(claim.common):
        key = override.partition("=")[0].strip()
        if key.startswith("cluster.") and key not in claim.fitted:
            message = f"the profile is changed for this claim: say under 'fitted' why {key} is"
            yield ("common", place), message
    if claim.grid and not any(check.up_to is not None for check in claim.checks):
        yield ("grid",), "no check has 'up_to', which is what a grid is for"
    if claim.sensitivity and claim.checks[0].up_to is not None:
        yield ("sensitivity",), "the first check is judged in a grid: add the input to that"


def _shape(check: Check, claim: Claim) -> Iterator[tuple[KeyPath, str]]:
    """Variants that exist and that the form can use."""
    for key in ("of", "over"):
        for place, name in enumerate(getattr(check, key)):
            if name not in claim.variants:
                yield (key, place), f"no variant {name!r}; there are: {', '.join(claim.variants)}"
    paired = check.form in _PAIRED
    if paired and len(check.over) != len(check.of):
        yield (), f"form {check.form} compares pairs: 'over' needs as many variants as 'of'"
    if not paired and check.over:
        yield ("over",), f"form {check.form} compares with no other variant"
    if check.form in ("ratio", "saved") and len(check.of) > 1:
        yield ("of",), f"form {check.form} compares one pair"
    if check.form == "value" and len(check.of) > 1:
        yield ("of",), "form value is that of one variant"
    if check.form in _ALONG and not check.along:
        yield (), f"form {check.form} needs 'along', the setting that differs"
    if len(check.of) < _ALONG.get(check.form, 1):
        yield ("of",), f"form {check.form} needs at least two variants"


def _honesty(check: Check, claim: Claim) -> Iterator[tuple[KeyPath, str]]:
    """Expectations that can be missed, stated where a reader sees them."""
    given = expectations(check)
    if len(given) > 1:
        yield (), "near, up_to, at_least, at_most and law exclude each other"
    if given and check.mark == "recalled":
        yield ("mark",), "a recalled figure is not checked, so it cannot be a target"
    band = "near" in given or "law" in given
    if band and (check.tolerance is None or not check.tolerance_from.strip()):
        yield (), "near and law need a 'tolerance' and 'tolerance_from', which says whose it is"
    if not band and check.tolerance is not None:
        yield ("tolerance",), "only near and law have a tolerance"
    if check.up_to is not None and (check.form in _ALONG or not claim.grid):
        yield (
            ("up_to",),
            "'up to' is judged in the claim's 'grid' of settings, by form value, ratio or saved",
        )
    if check.measure in COUNTED and (check.law != "none" or (given and check.mark == "derived")):
        yield (
            (),
            f"{check.measure} is worked out by formulas in the simulator: compared with a derived "
            "formula of the same counts it could not fail; leave out what is expected",
        )
    elif check.law != "none" and (check.measure, check.form) != _LAWS[check.law]:
        measure, form = _LAWS[check.law]
        yield ("law",), f"{check.law} is about measure {measure} and form {form}"
    if check.measure in COMPRESSION and given and not check.follows_from:
        yield (), "compression is set by an input: name it in 'follows_from'"
    if check.follows_from and check.follows_from not in claim.fitted:
        yield ("follows_from",), f"{check.follows_from} is not listed under 'fitted'"
