"""The columns of a log: what a sample says of each, and as what a model should read it.

How many distinct ids all rows have is an extrapolation. Of the rows a share q was read, in pieces
of some thousand, in which d ids occur, f of them in one piece only. The estimate is
d + f (1 / sqrt(q) - 1), the one of Charikar et al. (Towards Estimation Error Guarantees for
Distinct Values, PODS 2000), whose error in the worst case no other can undercut; of rows, not
pieces, but rows of one user often lie together. Where the pieces read are like the others, there
are at least d ids, and hardly ever more than d + u + 3 sqrt(c u): u = (1 / q - 1) F is the most
that may be unseen in the mean, and F the most that f is in the mean where it came out as it did. c,
at least 1, is the variance of how many of these f ids a piece has, over their mean: they may lie
together, too. Of logs sorted by id about one in a hundred has more ids than that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of
from numpy.typing import NDArray

from recsim_train.config.columns import Categorical
from recsim_train.config.errors import UserError
from recsim_train.config.problems import shown, suggest
from recsim_train.data.kernels import MISSING
from recsim_train.data.log import is_list
from recsim_train.data.mapping import bags_of, is_text, numbers_of, plain, rows_of
from recsim_train.data.profile import two_digits, zipf_exponent
from recsim_train.data.sample import LogSample

LABELS = ("label", "click", "clicked", "target", "y")
"""What a column of clicks is called where nobody says so."""
FEW = 100
"""Distinct whole numbers of which fewer are ids, not amounts."""
FEWEST_BUCKETS, MOST_BUCKETS = 1_000, 10_000_000
"""Of hashes: few ids share none of so many, and a table with more has above 640 MB."""
_VERY_MANY = 1 << 62
_LARGE = 1e6
"""Amounts are rarely larger; hashes and times nearly always are."""
_UNSCALED, _SIGNED = 10.0, 1_000.0
"""Larger numbers are not fed as they are, or the first steps of a model would diverge; where there
are some below 0, of which log1p makes 0, larger ones than the second."""
_SEPARATED = 0.05
"""Share of texts that have a separator where they are lists."""
_MALFORMED = 0.01
"""Share of labels that may be missing, as of `data.malformed_limit`."""
_ID = re.compile(r"(?i)(?<!b)(?<!pa)(?<!val)(?<!gr)(?<!m)ids?$|^(user|item|ad|c\d+)$|code$")
"""The names of ids; not bid, paid, valid, grid and mid. C1, C2 and so on are Criteo's."""


def distinct_of(pieces: Sequence[NDArray[Any]], share: float) -> dict[str, int]:
    """About how many distinct ids all rows have, at least, and at most. ``pieces``: the ids of each
    piece of the rows that were read, a ``share`` of all."""
    own = [np.unique(piece) for piece in pieces]
    _, places, times = np.unique(np.concatenate(own), return_inverse=True, return_counts=True)
    numbers = np.repeat(np.arange(len(own)), [len(ids) for ids in own])
    alone = np.bincount(numbers, times[places] == 1, len(own))  # of each, ids that no other has
    seen, once = len(times), float(alone.sum())
    together = max(1.0, float(alone.var() * len(own)) / max(1.0, once))
    # the mean of a Poisson number of such groups, by three deviations
    once_at_most = (1.5 * sqrt(together) + sqrt(2.25 * together + once)) ** 2
    unseen = (1.0 / share - 1.0) * once_at_most
    return {
        "about": round(seen + once * (1.0 / sqrt(share) - 1.0)),
        "least": seen,
        "most": ceil(seen + unseen + 3.0 * sqrt(together * unseen)),
    }


@dataclass(slots=True)
class Described:
    """A column."""

    name: str
    type: str
    """As the files have it."""
    missing: float
    """Share of the rows; empty lists are missing."""
    distinct: dict[str, int]
    """As of `distinct_of`."""
    skew: float | None
    """Zipf exponent of the values' frequencies."""
    numbers: dict[str, float] | None
    """least, median and most; None: they are no numbers."""
    lengths: dict[str, float] | None
    """Of lists: mean, usual (95 of a hundred have at most so many ids) and most."""
    positives: float | None
    """Share of ones, where all values are 0 or 1 and few are missing."""
    column: dict[str, Any]
    """The entry in data.columns; none: it is left out."""
    why: str
    """It is left out."""

    @property
    def rows(self) -> int:
        """Of its table; 0: it has none."""
        return int(self.column.get("num_buckets", self.column.get("hash_bucket_size", -1))) + 1


@dataclass(frozen=True, slots=True)
class Description:
    """A log."""

    paths: tuple[str, ...]
    """As they were given."""
    sample: LogSample
    label: Described | None
    columns: list[Described]
    """That are read, without the label."""
    left_out: dict[str, str]
    """The others, and why."""
    problems: list[str]
    """Why there can be no experiment, a sentence each; none: there can."""


def describe(paths: Sequence[str], sample: LogSample, label: str | None = None) -> Description:
    """What a sample of ``paths`` says. ``label``: the column of clicks; None: the one that is named
    like one.

    Raises UserError for a label that cannot be one.
    """
    found = {name: _described(name, own, sample) for name, own in sample.columns.items()}
    clicks = [name for name, one in found.items() if one.positives is not None]
    among = f"; of 0 and 1 are {', '.join(map(shown, clicks))}" if clicks else ""
    if label is not None and label not in clicks:
        near = suggest(label, clicks) or among
        raise UserError(f"--label: {shown(label)} is no column of 0 and 1 alone{near}")
    likely = {name.lower(): name for name in clicks}
    named = label or next((likely[name] for name in LABELS if name in likely), None)
    own = replace(found.pop(named), column={}) if named else None
    columns = [one for one in found.values() if one.column]
    numbered = [one for one in columns if one.numbers and not one.lengths]
    if numbered and all(one.rows for one in columns) and len(columns) > 1:
        # a model needs a feature
        one = min(numbered, key=lambda one: one.distinct["about"])
        one.column = _as_number(one)
    no_label = (
        f"no column of 0 and 1 is called {', '.join(LABELS[:-1])} or {LABELS[-1]}: name the one of "
        f"clicks with --label NAME{among}"
    )
    kinds = {one.column["type"] for one in columns}
    problems = [no_label] * (own is None) + [
        f"a model needs at least one {what}, and no column can be {kind}"
        for kind, what in (("numeric", "feature"), ("categorical", "table"))
        if kind not in kinds
    ]
    left_out = {name: one.why for name, one in found.items() if one.why} | sample.left_out
    return Description(tuple(paths), sample, own, columns, left_out, problems)


def _described(name: str, pieces: list[pa.Array], sample: LogSample) -> Described:
    """What the values of a column say."""
    types = dict.fromkeys(piece.type for piece in pieces if not of.is_null(piece.type))
    kind = next(iter(types), pa.null())
    # in some files all may be missing
    same = [pa.nulls(len(one), kind) if of.is_null(one.type) else one for one in pieces]
    values = [plain(one) for one in same]
    separator = _separator(values)
    lengths = None
    sizes = np.zeros(0, np.int64)
    if is_list(kind) or separator:
        spec = Categorical(name, _VERY_MANY, "hash", _VERY_MANY, separator)
        bags = [bags_of(one, spec) for one in values]
        values, sizes = [ids for ids, _ in bags], np.concatenate([own for _, own in bags])
        usual = max(1.0, float(np.percentile(sizes, 95, method="inverted_cdf")))
        lengths = {"mean": float(sizes.mean()), "usual": usual, "most": float(sizes.max())}
    values = [one.cast(pa.float64()) if of.is_decimal(one.type) else one for one in values]
    parts = _numbers(values, sample.format)
    hashes = [_hashes(one) for one in values]
    numbers = np.zeros(0) if parts is None else np.concatenate(parts)
    # as ids, fractions are malformed, or another text
    whole = len(numbers) == sum(map(len, hashes)) and bool((numbers == np.floor(numbers)).all())
    ids = hashes if whole or parts is None else parts
    everything = np.concatenate(ids)
    times = np.unique(everything, return_counts=True)[1]
    rows = sum(map(len, pieces))
    present = np.count_nonzero(sizes) if lengths else len(everything)
    one = Described(
        name, " or ".join(map(str, types)) or "null", 1.0 - present / rows,
        distinct_of(ids, sample.share), zipf_exponent(times), None, lengths, None, {}, "",
    )  # fmt: skip
    if numbers.size:
        least, median, most = map(float, (numbers.min(), np.median(numbers), numbers.max()))
        one.numbers = {"least": least, "median": median, "most": most}
        if one.missing <= _MALFORMED and not lengths and np.isin(numbers, (0.0, 1.0)).all():
            one.positives = float(numbers.mean())
    of_ids = whole and (
        one.distinct["about"] < FEW
        or _ID.search(name) is not None
        or float(np.median(np.abs(numbers))) > _LARGE
    )
    if sample.format == "Criteo text":  # the format says it
        one.column = _as_number(one) if name[0] == "I" else _as_ids(one, whole, sizes, separator)
    elif not present or (one.distinct["least"] == 1 and not one.missing):
        one.why = "all values that were read are the same, or missing"
    elif lengths and numbers.size and not whole:
        one.why = "holds lists of numbers that are no ids: they are not whole"
    elif lengths or not numbers.size or of_ids:
        one.column = _as_ids(one, whole, sizes, separator)
    elif (
        np.abs(numbers).max() > np.finfo(np.float32).max
        or numbers.max() <= _SIGNED < -numbers.min()
    ):
        one.why = "holds numbers that are too large, for which no normalizer is"
    else:
        one.column = _as_number(one)
    return one


def _separator(values: list[pa.Array]) -> str | None:
    """What stands between the ids of lists that are text: a bar, or a blank, comma or semicolon
    between whole numbers, of which some text has three; None: they are no lists."""
    if not (of.is_string(values[0].type) or of.is_large_string(values[0].type)):
        return None
    text = pa.chunked_array([one.cast(pa.large_utf8()) for one in values])
    for separator in "| ,;":
        often = pc.mean(pc.match_substring(text, separator)).as_py() or 0.0
        parts = rf"^(-?\d+({separator}-?\d+)*)?$"
        if often >= _SEPARATED and (
            separator == "|"
            or (
                pc.all(pc.match_substring_regex(text, parts)).as_py()
                and pc.max(pc.count_substring(text, separator)).as_py() > 1
            )
        ):
            return separator
    return None


def _numbers(values: list[pa.Array], form: str) -> list[NDArray[Any]] | None:
    """All values that are there, by piece, if they are numbers. Text may be only in CSV, where
    nothing else says what it is."""
    if form == "Parquet" and any(is_text(one.type) for one in values):
        return None
    found = [numbers_of(one) for one in values]
    if not all(fine is None or fine.all() for _, fine in found):
        return None
    return [numbers[~np.isnan(numbers)] for numbers, _ in found]


def _hashes(values: pa.Array) -> NDArray[Any]:
    """Of all that are there."""
    rows = np.empty(len(values), np.int64)
    rows_of(values, Categorical("", _VERY_MANY, "hash"), rows, np.zeros(2, np.uint64))
    return rows[rows > MISSING]


def _as_number(one: Described) -> dict[str, Any]:
    column = {"name": one.name, "type": "numeric"}
    numbers = one.numbers or {"least": 0.0, "most": 0.0}
    if numbers["most"] > (_UNSCALED if numbers["least"] >= 0.0 else _SIGNED):
        column["normalizer"] = "log1p"
    return column


def _as_ids(
    one: Described, whole: bool, sizes: NDArray[Any], separator: str | None
) -> dict[str, Any]:
    """``whole``: whether all are whole numbers; ``sizes``: the lengths of lists."""
    column: dict[str, Any] = {"name": one.name, "type": "categorical"}
    about, numbers = one.distinct["about"], one.numbers
    top = numbers["most"] if numbers and whole and numbers["least"] >= 0.0 else inf
    if top < min(2 * about, MOST_BUCKETS):
        column |= {"num_buckets": two_digits(top + 1), "out_of_range": "bucket"}
    else:
        buckets = max(FEWEST_BUCKETS, two_digits(2 * about))
        column["hash_bucket_size"] = min(buckets, MOST_BUCKETS)
    if one.lengths:
        most = max(1, int(min(one.lengths["most"], 2.0 * one.lengths["usual"])))
        mean = float(np.minimum(sizes, most).mean())
        column |= {"max_len": most, "mean_len": max(0.01, round(mean, 2))}
    return column | ({"separator": separator} if separator else {})
