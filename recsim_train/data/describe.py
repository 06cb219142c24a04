"""The columns of a log: what a sample says of each, and as what a model should read it.

How many distinct ids all rows have is an extrapolation. Of the rows a share q was read, in pieces
of some 4,096, in which d ids occur, f of them in one piece only. The estimate is d + f (1 / sqrt(q)
- 1), the one of Charikar et al. (Towards Estimation Error Guarantees for Distinct Values, PODS
2000), whose error in the worst case no other can undercut; of rows, not pieces, but rows of one
user often lie together. Where the pieces read are like the others, there are at least d ids, and at
most d + u + 3 sqrt(u) but for some chances in a thousand, where u = (1 / q - 1) F is the most that
may be unseen in the mean, and F the most that f is in the mean where it came out as it did.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as of
from numpy.typing import NDArray

from recsim_train.config.columns import Categorical, Column
from recsim_train.config.errors import UserError
from recsim_train.config.problems import shown, suggest
from recsim_train.data.hashing import MISSING
from recsim_train.data.mapping import bags_of, is_text, numbers_of, plain, rows_of
from recsim_train.data.profile import two_digits, zipf_exponent
from recsim_train.data.sample import Chunk, LogSample, kind_of

LABELS = ("label", "click", "clicked", "target", "y")
"""What a column of clicks is called where nobody says so."""
FEW = 100
"""Distinct whole numbers of which fewer are ids, not amounts."""
FEWEST_BUCKETS, MOST_BUCKETS = 1_000, 10_000_000
"""Of hashes: few ids share none of so many, and a table with more has above 640 MB."""
_HASHES = (1 << 62) + 1
_LARGE = 1e6
"""Counts are rarely larger; hashes nearly always are."""
_UNSCALED = 1_000.0
"""Larger numbers are not fed as they are: the first steps of a model would diverge."""
_LONGEST = 1 << 31
_SEPARATED = 0.05
"""Share of texts that have a separator where they are lists."""
_MALFORMED = 0.01
"""Share of labels that may be wrong, as of `data.malformed_limit`."""
_ID = re.compile(r"(?i)(?<!b)(?<!pa)(?<!val)(?<!gr)(?<!m)ids?$|^(user|item|ad|c\d+)$|code$")
"""The names of ids; not bid, paid, valid, grid and mid. C1, C2 and so on are Criteo's."""
_NONE = np.zeros(0, np.int64)
Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]


class Distinct(NamedTuple):
    """How many distinct ids all rows have."""

    about: int
    least: int
    most: int


def distinct_of(pieces: Sequence[Ids], share: float) -> Distinct:
    """``pieces``: the ids of each piece of the rows that were read, a ``share`` of all."""
    several = np.concatenate([_NONE, *map(np.unique, pieces)])
    times = np.unique(several, return_counts=True)[1]
    seen, once = len(times), int(np.count_nonzero(times == 1))
    once_at_most = (1.5 + sqrt(2.25 + once)) ** 2  # a Poisson number's mean, by three deviations
    unseen = (1.0 / share - 1.0) * once_at_most
    about = seen + once * (1.0 / sqrt(share) - 1.0)
    return Distinct(round(about), seen, ceil(seen + unseen + 3.0 * sqrt(unseen)))


class Lengths(NamedTuple):
    """Ids of a list."""

    mean: float
    usual: int
    """95 of a hundred lists have at most so many."""
    most: int
    taken: int
    """That are suggested to be taken: the most, or if these are above twice the usual, these."""
    mean_taken: float


class Spread(NamedTuple):
    """Of numbers."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True)
class Described:
    """A column."""

    name: str
    type: str
    """As the files have it."""
    missing: float
    """Share of the rows."""
    kind: str
    """text, whole, real, decimal, bool, list or null; or infinite, fractions or
    mixed: what is unfit."""
    separator: str | None
    """Of lists that are text."""
    distinct: Distinct
    skew: float | None
    """Zipf exponent of the ids' frequencies."""
    numbers: Spread | None
    """None: they are none."""
    positives: float | None
    """Share of ones, where all values are 0 or 1."""
    lengths: Lengths | None
    column: Column | None = None
    """As what a model should read it; None: not at all."""
    note: str = ""
    """Why it is left out, or read as it is."""

    @property
    def rows(self) -> int:
        """Of its table; 0: it has none."""
        return self.column.buckets + 1 if self.column and self.column.buckets else 0


@dataclass(frozen=True, slots=True)
class Description:
    """A log."""

    paths: tuple[str, ...]
    """As they were given."""
    sample: LogSample
    label: Described | None
    columns: list[Described]
    """Without the label."""
    problems: list[str] = field(default_factory=list)
    """Why there can be no experiment, a sentence each; none: there can."""

    def of_type(self, kind: str) -> list[Described]:
        """Columns that are read as numeric, or as categorical."""
        return [one for one in self.columns if one.column is not None and one.column.type == kind]


def describe(paths: Sequence[str], sample: LogSample, label: str | None = None) -> Description:
    """What a sample of ``paths`` says. ``label``: the column of clicks; None: the one that is named
    like one.

    Raises UserError for a label that cannot be one.
    """
    found = [_described(name, own, sample.share) for name, own in sample.columns.items()]
    clicks = [one for one in found if one.positives is not None and one.missing <= _MALFORMED]
    if label is not None:
        _check_label(label, sample, [one.name for one in clicks])
        named: list[Described] = [one for one in clicks if one.name == label]
    else:
        named = sorted(
            (one for one in clicks if one.name.lower() in LABELS),
            key=lambda one: LABELS.index(one.name.lower()),
        )
    own = named[0] if named else None
    columns = [_suggested(one, sample.criteo) for one in found if one is not own]
    description = Description(tuple(paths), sample, own, columns)
    if own is None:
        description.problems.append(_no_label([one.name for one in clicks]))
    if not description.of_type("numeric"):
        _make_numeric(description)
    for kind, what in ("numeric", "feature"), ("categorical", "table"):
        if not description.of_type(kind):
            description.problems.append(
                f"a model needs at least one {what}, and no column can be {kind}"
            )
    return description


def _check_label(label: str, sample: LogSample, clicks: list[str]) -> None:
    if label in sample.left_out:
        raise UserError(f"--label: column {shown(label)}: {sample.left_out[label]}")
    if label not in sample.columns:
        raise UserError(
            f"--label: there is no column {shown(label)}{suggest(label, sample.columns)}"
        )
    if label not in clicks:
        raise UserError(
            f"--label: column {shown(label)} has other values than 0 and 1, or none, in more than "
            f"{_MALFORMED:.0%} of the rows{_candidates(clicks)}"
        )


def _no_label(clicks: list[str]) -> str:
    names = f"{', '.join(LABELS[:-1])} or {LABELS[-1]}"
    return (
        f"no column of 0 and 1 is called {names}: name the one of clicks with --label NAME"
        f"{_candidates(clicks)}"
    )


def _candidates(clicks: list[str]) -> str:
    return f"; only 0 and 1 are in {', '.join(map(shown, clicks))}" if clicks else ""


def _make_numeric(description: Description) -> None:
    """Have the ids with the fewest values read as a number: a model needs a feature."""
    columns, tables = description.columns, description.of_type("categorical")
    whole = [one for one in tables if one.kind in ("whole", "bool")]
    if len(tables) > 1 and whole:
        one = min(whole, key=lambda one: one.distinct.about)
        columns[columns.index(one)] = _as_number(
            replace(one, note="taken as a number: no other column is one, and a model needs one")
        )


def _described(name: str, chunks: list[Chunk], share: float) -> Described:
    """What the values of a column say."""
    rows = sum(len(chunk.values) for chunk in chunks)
    types = dict.fromkeys(chunk.values.type for chunk in chunks)
    written = {one.written for one in chunks if is_text(one.values.type)} == {True}
    values = [_plain(one.values) for one in chunks if not of.is_null(one.values.type)]
    kinds = {kind_of(one) for one in types}
    kind = next((one for one in _JOINT if one in kinds), "null")
    separator = _separator(values) if kind == "text" else None
    lengths = sizes = None
    if kind == "list" or separator is not None:
        kind = "list"
        spec = Categorical(name, _HASHES, "hash", _LONGEST, separator)
        bags = [bags_of(one, spec) for one in values]
        values = [inside for inside, _ in bags]
        sizes = np.concatenate([_NONE, *(own for _, own in bags)])
        sizes = np.pad(sizes, (0, rows - len(sizes)))  # of files where all is missing
        lengths = _lengths(sizes)
    parts = _numbers(values)
    numbers = None if parts is None else np.concatenate([np.zeros(0), *parts])
    whole = numbers is None or bool((numbers == np.floor(numbers)).all())
    if parts is None or whole:
        pieces = [_hashes(one) for one in values]
    else:
        pieces = [part.view(np.int64) for part in parts]
    ids = np.concatenate([_NONE, *pieces])
    # not so with the text nan, or numbers of too many bits
    exact = whole and numbers is not None and numbers.size == len(ids)
    present = len(ids) if sizes is None else int(np.count_nonzero(sizes))
    spread = None
    if numbers is not None and numbers.size:
        spread = Spread(*map(float, (numbers.min(), np.median(numbers), numbers.max())))
    if spread and not np.isfinite(np.array([spread.least, spread.most], np.float32)).all():
        kind, spread = "infinite", None
    elif kind == "list" and not whole:
        kind = "fractions"
    elif kind == "list" and not exact:
        spread = None
    elif spread and (kind in ("whole", "real") or (kind == "text" and written and exact >= whole)):
        kind = "whole" if exact else "real"
    elif kind == "text" and not {"real", "decimal"}.isdisjoint(kinds):
        kind = "mixed"
    times = np.unique(ids, return_counts=True)[1]
    positives = None
    if spread and sizes is None and numbers is not None and np.isin(numbers, (0.0, 1.0)).all():
        positives = float(numbers.mean())
    return Described(
        name, _type_said([one for one in types if not of.is_null(one)], written, kind, separator),
        1.0 - present / rows, kind, separator,
        distinct_of(pieces, share), zipf_exponent(np.sort(times)[::-1]), spread, positives, lengths,
    )  # fmt: skip


def _plain(column: pa.Array) -> pa.Array:
    """Without a dictionary, and numbers as those that have ids."""
    column = plain(column)
    return column.cast(pa.float64()) if of.is_decimal(column.type) else column


_JOINT = ("list", "text", "decimal", "real", "whole", "bool")
"""The first of these that a column is in some file is what it is in all."""


def _hashes(values: pa.Array) -> Ids:
    """Of all that are there."""
    found = np.empty(len(values), np.int64)
    rows_of(values, Categorical("", _HASHES, "hash"), found, np.zeros(2, np.uint64))
    return found[found > MISSING]


def _numbers(values: list[pa.Array]) -> list[Numbers] | None:
    """All values that are there, by array, if they are numbers."""
    found = []
    for one in values:
        if of.is_binary(one.type) or of.is_large_binary(one.type):
            return None  # bytes need not be text
        numbers, fine = numbers_of(one)
        if fine is not None and not fine.all():
            return None
        found.append(numbers[~np.isnan(numbers)])
    return found


def _separator(values: list[pa.Array]) -> str | None:
    """What stands between the ids of lists that are text: a bar, or a blank, comma or semicolon
    between whole numbers, of which some text has three; None: they are no lists."""
    if not values or not all(
        of.is_string(one.type) or of.is_large_string(one.type) for one in values
    ):
        return None
    text = pa.chunked_array([one.cast(pa.large_utf8()) for one in values]).drop_null()
    text = text.filter(pc.not_equal(text, ""))
    for separator in "| ,;":
        within = pc.match_substring(text, separator)
        if not len(text) or (pc.mean(within).as_py() or 0.0) < _SEPARATED:
            continue
        parts = rf"^-?\d+({separator}-?\d+)*$"
        if separator == "|" or (
            pc.all(pc.match_substring_regex(text, parts)).as_py()
            and pc.max(pc.count_substring(text, separator)).as_py() > 1
        ):
            return separator
    return None


def _lengths(sizes: Ids) -> Lengths:
    usual = max(1, int(np.percentile(sizes, 95, method="inverted_cdf")))
    most = int(sizes.max())
    taken = max(1, most) if most <= 2 * usual else usual
    return Lengths(float(sizes.mean()), usual, most, taken, float(np.minimum(sizes, taken).mean()))


def _type_said(types: list[pa.DataType], written: bool, kind: str, separator: str | None) -> str:
    said = " or ".join(dict.fromkeys(map(_short, types)))
    if written and kind in _WRITTEN:
        said += f" of {_WRITTEN[kind]}"
    return f"{said}, lists with {separator!r} between ids" if separator else said or "nothing"


def _short(kind: pa.DataType) -> str:
    if is_text(kind):
        return "text"
    return f"dictionary of {_short(kind.value_type)}" if of.is_dictionary(kind) else str(kind)


_WRITTEN = {"whole": "whole numbers", "real": "numbers"}


def _suggested(one: Described, criteo: bool) -> Described:
    """The column as what a model should read it; Criteo's columns are what their format says."""
    if criteo:
        return _as_number(one) if one.name[0] == "I" else _as_ids(one)
    if one.missing == 1.0 or not one.distinct.least:
        return replace(one, note="all values that were read are missing")
    if one.kind in _UNFIT:
        return replace(one, note=_UNFIT[one.kind])
    if one.distinct.least == 1 and not one.missing:
        return replace(one, note="all values that were read are the same")
    return _as_number(one) if _is_amount(one) else _as_ids(one)


_UNFIT = {
    "infinite": "holds numbers that are infinite as 32-bit floats",
    "mixed": "holds numbers in some files and text that is none in others",
    "fractions": "holds lists of numbers that are no ids: they are not whole",
}


def _is_amount(one: Described) -> bool:
    """Whether a column's numbers are amounts, not ids."""
    if one.kind in ("real", "decimal"):
        return True
    if one.kind != "whole" or one.numbers is None or _ID.search(one.name):
        return False
    least, median, most = one.numbers
    like_hashes = (median > _LARGE and most > 2.0 * least) or least < -_LARGE < _LARGE < most
    return one.distinct.about >= FEW and not like_hashes


def _as_number(one: Described) -> Described:
    least, median, most = one.numbers or Spread(0.0, 0.0, 0.0)
    keys: dict[str, Any] = {}
    if least >= 0.0 and (most > 10.0 * median or median > 10.0):
        keys["normalizer"] = "log1p"
    elif max(-least, most) > _UNSCALED:
        if median < 0.0:
            return replace(one, note="holds large numbers below 0, for which no normalizer is")
        keys["normalizer"] = "log1p"
        one = replace(one, note=f"{one.note}{'; ' * bool(one.note)}numbers below 0 count as 0")
    return replace(one, column=Column(name=(one.name,), type="numeric", **keys))


def _as_ids(one: Described) -> Described:
    keys: dict[str, Any] = {}
    if one.lengths is not None:
        mean = max(0.01, round(one.lengths.mean_taken, 2))
        keys = {"max_len": one.lengths.taken, "mean_len": mean}
        keys |= {"separator": one.separator} if one.separator else {}
    about, top = one.distinct.about, one.numbers.most if one.numbers else 0.0
    numbered = one.kind != "text" and one.numbers is not None and one.numbers.least >= 0.0
    if numbered and top < min(2 * about, MOST_BUCKETS):
        keys |= {"num_buckets": two_digits(top + 1), "out_of_range": "bucket"}
    else:
        buckets = max(FEWEST_BUCKETS, two_digits(2 * about))
        if buckets > MOST_BUCKETS:
            buckets = MOST_BUCKETS
            one = replace(one, note=f"no more buckets than {MOST_BUCKETS:,} are suggested")
        keys["hash_bucket_size"] = buckets
    return replace(one, column=Column(name=(one.name,), type="categorical", **keys))
