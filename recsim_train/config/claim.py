"""A published claim beside the experiment that checks it: what is said, compared and expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from recsim_train.config.section import Section
from recsim_train.config.units import Share

Mark = Literal["found", "derived", "recalled", "ours"]
Text = Annotated[str, Field(min_length=1)]
Factor = Annotated[float, Field(gt=0.0)]


class Check(Section):
    """One figure made of the variants' runs, and what it should be."""

    says: Text
    """What is compared with what, in words: the baseline is named here."""
    mark: Mark = "ours"
    """Where the expectation comes from: found in a public text; derived by algebra; recalled, not
    checked (a reconstruction); ours (a reconstruction)."""
    measure: Literal["eps", "time", "bytes", "value_compression", "wire_compression", "sync_gap"]
    """Of each run. eps: examples/s; time: seconds per example; bytes: sent per example, a ring
    all-reduce at 2(n-1)/n of its vector; compression: the run's own counts; sync_gap: its mean."""
    form: Literal["value", "ratio", "saved", "exponent", "knee", "crossover"] = "value"
    """What is made of it. value: the first of ``of``; ratio: of / over; saved: 1 - of / over, of
    several pairs the largest; exponent: the slope of log(measure) over log(along); knee: where a
    line through the first of ``of`` meets the level of the last; crossover: where of / over
    passes 1, interpolated."""
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
    at_least: float | None = None
    """The figure should be at least this."""
    at_most: float | None = None
    """The figure should be at most this."""
    law: Literal["none", "des_crossover", "easgd_knee", "easgd_sync_gap"] = "none"
    """A derived formula that says what the figure should be near; see docs/claims.md."""
    tolerance: Share = 0.2
    """Of ``near`` and ``law``: largest relative deviation."""


class Sensitivity(Section):
    """An input that is changed, to see what the first check makes of it."""

    input: Text
    """Its name in words."""
    changes: Annotated[dict[str, tuple[Text, ...]], Field(min_length=1)]
    """Overrides by what they do ("x2"), each as ``--set`` takes it, on top of the variant's own."""


class Claim(Section):
    """A published claim, how it is checked, and what the answer leans on."""

    statement: Text
    """What is claimed, in words."""
    source: Text
    """Who claims it."""
    mark: Mark
    """How we know the statement: found in a public abstract, page or file; derived; recalled, not
    checked; ours. What is recalled or ours is shown as a reconstruction."""
    published: float | None = None
    """The published number, if there is one: a factor, or a share as a fraction of one."""
    setting: Text
    """What is simulated, and which of it is a reconstruction."""
    hinges_on: Text
    """The inputs on which the answer turns."""
    fitted: tuple[Text, ...] = ()
    """Inputs that were chosen so that a figure comes out; none: nothing was fitted."""
    common: tuple[Text, ...] = ()
    """Overrides of every variant."""
    variants: Annotated[dict[str, tuple[Text, ...]], Field(min_length=1)]
    """Runs by name, each a list of overrides as ``--set`` takes them; one strategy each."""
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    """The first is the claim itself, others are its parts or its context."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """Inputs that are varied; the first check's variants are simulated again for each change."""


_PAIRED = ("ratio", "saved", "crossover")
_ALONG = {"exponent": 2, "knee": 2, "crossover": 2}
_LAWS = {
    "des_crossover": ("bytes", "crossover"),
    "easgd_knee": ("eps", "knee"),
    "easgd_sync_gap": ("sync_gap", "value"),
}


def claim_problems(claim: Claim) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(place within the section, sentence) of what no single field can say."""
    for index, check in enumerate(claim.checks):
        at: tuple[str | int, ...] = ("checks", index)
        for key in ("of", "over"):
            for place, name in enumerate(getattr(check, key)):
                if name not in claim.variants:
                    known = ", ".join(claim.variants)
                    yield (*at, key, place), f"no variant {name!r}; there are: {known}"
        paired = check.form in _PAIRED
        if paired and len(check.over) != len(check.of):
            yield at, f"form {check.form} compares pairs: 'over' needs as many variants as 'of'"
        if not paired and check.over:
            yield (*at, "over"), f"form {check.form} compares with no other variant"
        if check.form == "ratio" and len(check.of) > 1:
            yield (*at, "of"), "form ratio compares one pair"
        if check.form == "value" and len(check.of) > 1:
            yield (*at, "of"), "form value is that of one variant"
        if check.form in _ALONG and not check.along:
            yield at, f"form {check.form} needs 'along', the setting that differs"
        if len(check.of) < _ALONG.get(check.form, 1):
            yield (*at, "of"), f"form {check.form} needs at least two variants"
        expectations = [check.near, check.at_least, check.at_most]
        given = sum(e is not None for e in expectations) + (check.law != "none")
        if given > 1:
            yield at, "near, at_least, at_most and law exclude each other"
        if given and check.mark == "recalled":
            yield (*at, "mark"), "a recalled figure is not checked, so it can be no target"
        if check.law != "none" and (check.measure, check.form) != _LAWS[check.law]:
            measure, form = _LAWS[check.law]
            yield (*at, "law"), f"{check.law} is about measure {measure} and form {form}"
