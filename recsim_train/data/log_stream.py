"""Batches of a log's rows for some loops, each in its order and decoded a little ahead of it; and
what is looked at of its files before a run.

A malformed row keeps its place: it counts as a row, and within its batch it is replaced by the next
well-formed one (after the last, by the first). So every batch keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from recsim_train.config.checks import SAME_ROWS
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.dealing import BatchStream, Dealt, training_rows
from recsim_train.data.files import same_rows
from recsim_train.data.input import files_of, layout_for, open_log, to_convert
from recsim_train.data.log import PIECE, Log
from recsim_train.data.malformed import FIRST, LOOKED_AT_FROM, Malformed
from recsim_train.data.mapping import KINDS, Ids, Mapped, Mapper, Room
from recsim_train.data.order import WINDOW, Order, Turn
from recsim_train.trace.facts import BeyondRows

Piece = tuple[int, pa.RecordBatch]
"""Rows, and the number of the first of them in the log."""


class Maker:
    """Makes batches of a log's rows, and keeps count of the malformed ones."""

    def __init__(self, log: Log, mapper: Mapper, path: str, limit: float) -> None:
        """``path``: as sentences have it; ``limit``: as of `Data`."""
        self.log, self.mapper, self.path, self.limit = log, mapper, path, limit
        self.malformed = Malformed()

    def filled(self, pieces: Iterable[Piece], room: Room | None = None) -> Room:
        """A room with some pieces more; None: a new one with these."""
        pieces = list(pieces)
        room = room or Room(self.mapper, sum(batch.num_rows for _, batch in pieces))
        for first, batch in pieces:
            room.add(first, batch)
            self.malformed.decoded += batch.num_rows
        self.malformed.beyond = self.mapper.beyond.tolist()
        return room

    def batch(self, given: Mapped) -> NumpyBatch:
        """All rows; malformed ones are counted and replaced.

        Raises RunFailed if not one of them is well-formed, or too many so far were not.
        """
        self.malformed.rows += len(given)
        if given.kinds.any():
            for code in np.unique(given.kinds[given.kinds != 0]).tolist():
                self._count(KINDS[code - 1], given.origins[given.kinds == code])
            good = np.flatnonzero(given.kinds == 0)
            if not good.size:
                raise RunFailed(
                    f"{self.path}: no well-formed row in a whole batch: {self.malformed.describe()}"
                )
            self.malformed.check(self.path, self.limit, least=LOOKED_AT_FROM)
            given = given.take(good[np.searchsorted(good, np.arange(len(given))) % good.size])
        return given.batch(self.mapper.bags)

    def _count(self, kind: str, origins: Ids) -> None:
        said = self.mapper.said.get(kind, {})
        some = np.sort(origins)[:FIRST].tolist()
        where = ((row, f"{self.log.place(row)}{_more(said.get(row))}") for row in some)
        self.malformed.add(kind, origins.size, where)

    def check(self) -> None:
        """Raise RunFailed where too many of the rows so far were malformed, of however few."""
        self.malformed.check(self.path, self.limit)

    def in_order(self, begin: int, stop: int, batch_size: int) -> Iterator[NumpyBatch]:
        """The log's rows ``begin`` to ``stop`` in batches, the last of them short.

        A short last batch without one well-formed row is left out. Raises as `batch`, and at the
        end as `check`.
        """
        flow = Flow(self.log, (Turn(0, part) for part in self.log.parts(begin, stop)))
        while pieces := flow.take(batch_size):
            given = self.filled(pieces).taken()
            if len(given) < batch_size < stop - begin and given.kinds.all():
                break
            yield self.batch(given)
        self.check()


def _more(said: str | None) -> str:
    return f": {said}" if said else ""


class Flow:
    """The rows of some parts, one part after the other."""

    def __init__(self, log: Log, turns: Iterable[Turn]) -> None:
        self._log, self._turns = log, iter(turns)
        self.epoch = 0
        """Of the next row, or the last one."""
        self._pieces: Iterator[Piece] = iter(())
        self._piece: Piece | None = None

    def more(self) -> bool:
        """Whether there is a next row; it is decoded."""
        while self._piece is None and (piece := next(self._pieces, None)) is None:
            if (turn := next(self._turns, None)) is None:
                return False
            self.epoch, self._pieces = turn.epoch, self._log.read(turn.part)
        self._piece = self._piece or piece
        return True

    def take(self, rows: int) -> list[Piece]:
        """The next so many rows in pieces, fewer at the end of an epoch."""
        given: list[Piece] = []
        epoch = self.epoch if self.more() else None
        while rows and self.more() and self.epoch == epoch:
            assert self._piece is not None
            (first, batch), self._piece = self._piece, None
            if batch.num_rows > rows:
                self._piece = first + rows, batch.slice(rows)
            given.append((first, batch.slice(0, rows)))
            rows -= given[-1][1].num_rows
        return given


class LoopRows:
    """The endless examples of one loop: window by window, each in an order of its own."""

    def __init__(self, maker: Maker, order: Order, loop: int, done: int = 0) -> None:
        """``done``: rows of them that are left out."""
        self._maker, self._order, self._loop = maker, order, loop
        self._size = WINDOW if order.shuffle else PIECE
        place = order.place(loop, done, self._size)
        self._flow = Flow(maker.log, place.turns)
        self._next, self._spare = (Room(maker.mapper, self._size) for _ in range(2))
        self._number, self._first = place.window, place.row
        self._at = self._epoch = 0
        self._now: Mapped | None = None
        self._rows = np.zeros(0, np.int64)
        self.epochs = 0
        """Passes over the training rows begun so far."""

    def batch(self, size: int) -> NumpyBatch:
        """The next so many examples. Raises as `Maker.batch`."""
        pieces, left = [], size
        while left:
            if self._at == len(self._rows):
                self._turn()
            assert self._now is not None
            rows = self._rows[self._at : self._at + left]
            pieces.append(self._now.take(rows))
            self._at, left = self._at + len(rows), left - len(rows)
        batch = self._maker.batch(Mapped.joined(pieces))
        # as many rows of the next window as were taken of this one: no batch waits for a window
        self._load(self._at)
        return batch

    def _load(self, rows: int) -> None:
        """Have so many rows of the next window, at least, or all of it: it ends with its epoch."""
        while self._next.rows < rows and self._flow.more():
            if self._next.rows and self._flow.epoch != self._epoch:
                return
            self._epoch = self._flow.epoch
            most = min(PIECE, self._size - self._next.rows)
            self._maker.filled(self._flow.take(most), self._next)

    def _turn(self) -> None:
        self._load(self._size)
        self._rows = self._order.window(self._loop, self._number, self._next.rows)
        self._now = self._next.taken()
        self._next, self._spare = self._spare, self._next
        self._number, self._at, self._first = self._number + 1, self._first, 0
        self.epochs = self._epoch + 1


_LOOKED_AT = 1000
"""Rows of files that are looked at before a run."""


class LogStream(BatchStream):
    """Rows of files, by the rule of `recsim_train.data.order`."""

    def __init__(self, model: Model, data: Data, seed: int, dealt: Dealt) -> None:
        super().__init__(dealt)
        self._maker, log = maker_of(model, data)
        self.malformed = self._maker.malformed
        parts = log.parts(*_training_rows(data, log, self._maker.path))
        order = Order(parts, dealt.total, seed, data.shuffle)
        done = dealt.first * dealt.batch_size
        self._loops = {p: LoopRows(self._maker, order, p, done) for p in dealt.positions}

    @property
    def epochs(self) -> int:
        return max((loop.epochs for loop in self._loops.values()), default=0)

    def _make(self, index: int) -> NumpyBatch:
        return self._loops[index % self._total].batch(self.batch_size)

    def check(self) -> None:
        self._maker.check()


def _training_rows(data: Data, log: Log, name: str) -> tuple[int, int]:
    """Of a log; of the beginning of one all rows stand for those that are trained on."""
    return training_rows(data, log.rows, name) if log.whole else (0, log.rows)


def maker_of(model: Model, data: Data, paths: Sequence[str] | None = None) -> tuple[Maker, Log]:
    """What makes batches of the files ``paths`` (None: those that are trained on), and their log.

    Raises UserError.
    """
    layout, paths = layout_for(model, data), paths or data.path or ()
    log = open_log(layout, data, paths)
    return Maker(log, Mapper(layout), data.named(paths), data.malformed_limit), log


def decoded_rows(model: Model, data: Data, loops: int) -> float:
    """As `Order.decoded`; 1 where a text is yet to be converted. Raises UserError."""
    if next(to_convert(data.with_({"eval_path": None})), None) is not None:
        return 1.0
    maker, log = maker_of(model, data)
    return Order(log.parts(*_training_rows(data, log, maker.path)), loops, 0).decoded


def check_files(model: Model, data: Data) -> list[BeyondRows]:
    """As `recsim_train.data.stream.check_data`, of ``data.path``."""
    assert data.path is not None
    found = _looked_at(model, data, data.path)
    if data.eval_path is not None and data.holds_out:
        _looked_at(model, data, data.eval_path)
        names = [(a, b) for a in files_of(data.path) for b in files_of(data.eval_path)]
        for path, eval_path in names:
            if same_rows(path, eval_path):
                raise UserError(
                    f"data.eval_path: {SAME_ROWS.format(path=path, eval_path=eval_path)}"
                )
    return found.beyond_rows(table.rows for table in model.tables)


def _looked_at(model: Model, data: Data, paths: Sequence[str]) -> Malformed:
    """The first rows of the files. Raises UserError where there is none, or no good one."""
    maker, log = maker_of(model, data, paths)
    begin, end = (0, log.rows)
    if paths == data.path:
        begin, end = _training_rows(data, log, maker.path)
    try:
        for part in log.parts(begin, min(end, begin + _LOOKED_AT)):
            for piece in log.read(part):
                maker.batch(maker.filled([piece]).taken())
    except RunFailed as error:
        raise UserError(str(error)) from None
    return maker.malformed
