"""Batches of a log's rows for some loops; and what is looked at of its files before a run."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_train.config.checks import SAME_ROWS
from recsim_train.config.errors import RunFailed, UserError
from recsim_train.config.experiment import Data, Model
from recsim_train.data.batch import NumpyBatch
from recsim_train.data.dealing import BatchStream, Dealt, training_rows
from recsim_train.data.files import same_rows
from recsim_train.data.input import files_of, layout_for, open_log, to_convert
from recsim_train.data.log import Log
from recsim_train.data.malformed import Malformed
from recsim_train.data.mapping import Mapper
from recsim_train.data.order import Order
from recsim_train.data.rows import LoopRows, Maker
from recsim_train.trace.facts import BeyondRows

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
