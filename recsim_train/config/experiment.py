"""The experiment: model, data, roles, training, strategy. Its fields are the YAML's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from recsim_train.config.columns import Column, layout_of
from recsim_train.config.sweep import Search, Sweep
from recsim_train.config.units import (
    Count,
    Duration,
    Every,
    Names,
    Portion,
    Positive,
    PositiveDuration,
    Rows,
    Section,
    Share,
    every_of,
)

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
    order: Portion | None = None
    """Share of pairs of configurations that are predicted in the order measured, at least. Pairs
    count whose measured difference is beyond the noise of both."""
    order_min_pairs: Positive = 100
    """Pairs that ``order`` needs."""
    coverage_least: Portion | None = None
    """Share of 90 % intervals that hold the measurement, at least."""
    coverage_most: Portion | None = None
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


MOST_PROCESSES = 100_000
"""Of one role: ten times what predictions were tried with; more is taken for a mistake."""
MOST_THREADS = 250_000
"""Worker threads of all trainers together."""


class Table(Section):
    """One embedding table."""

    short_forms = ("count",)

    rows: Rows
    """Rows after the cap."""
    ids: Positive = 1
    """Ids per example: exactly this many, or at most where ``variable``."""
    variable: bool = False
    """Whether bags hold 1 to ``ids`` ids instead of exactly ``ids``."""
    mean_ids: Annotated[float, Field(gt=0.0)] | None = None
    """variable: ids per example in the mean; none: half of 1 + ``ids``."""


class NamedShape(Section):
    """A tensor of a module."""

    name: str
    shape: tuple[Count, ...]


class PassCounts(Section):
    """What one pass of a module does, as torch's operators that it runs were counted."""

    flops: float
    """Floating-point operations of an example."""
    bytes: float
    """Bytes that operators other than matrix products read and write for an example."""
    fixed_bytes: float
    """The same for none: whatever the batch."""
    operators: Count
    """How many run that are no mere views."""
    products: Count
    """Of these, matrix products."""


class ModuleShape(Section):
    """What is known of a module without torch; `recsim-train model describe` finds it."""

    digest: str
    """Of the sources that it was made from, and of what its function was given."""
    tables: tuple[str, ...]
    """The names of tables that its function is called with."""
    parameters: tuple[NamedShape, ...]
    """What is trained, in the order of ``named_parameters()``."""
    buffers: tuple[NamedShape, ...] = ()
    """Of floating-point numbers."""
    draws: bool = False
    """Whether a training pass draws random numbers (dropout)."""
    forward: PassCounts
    backward: PassCounts
    kept_bytes: float
    """That the forward pass keeps of an example for the backward pass."""
    not_counted: tuple[str, ...] = ()
    """Operators, besides element-wise ones, that count as bytes only."""


class Model(Section):
    """A click model: embedding bags, dense features, and the net that joins them.

    dlrm: bottom MLP, dot interaction, top MLP (arXiv 1906.00091); wide_deep: a linear part over ids
    and features beside an MLP (arXiv 1606.07792); deepfm: these two and a factorisation machine
    (arXiv 1703.04247); dcn: cross layers beside an MLP (arXiv 1708.05123); module: a
    `torch.nn.Module` of one's own.
    """

    short_forms = ("preset", "max_rows")

    name: str = "custom"
    """Preset or own name, printed in reports."""
    kind: Literal["dlrm", "wide_deep", "deepfm", "dcn", "module"] = "dlrm"
    """Which net; module follows from ``module``."""
    module: Annotated[str | None, Field(repr=False)] = None
    """A function of one's own that makes the net, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION; a
    file relative to the experiment's. It is called with ``dense_features``, ``tables`` (their
    names) and ``embedding_dim``, and its ``forward(dense [B, F], embedded [B, T, d])`` returns
    logits [B]."""
    described: Annotated[ModuleShape | None, Field(repr=False)] = None
    """Of a module; not to be written by hand."""
    embedding_dim: Positive
    """Width of every embedding; in a dlrm, of the bottom MLP's output too."""
    dense_features: Positive = 13
    """Dense features per example."""
    bottom_mlp: tuple[Positive, ...] = ()
    """dlrm: layer widths after the features; the last equals embedding_dim. Other kinds: none."""
    top_mlp: tuple[Positive, ...]
    """Layer widths of the top (dlrm) or deep MLP; the last is 1, the logit. A module: none."""
    cross_layers: Positive = 3
    """dcn: how many cross layers."""
    tables: Annotated[tuple[Table, ...], Field(min_length=1)]
    """The embedding tables, in the order of the data's categorical columns."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of parameters and activations."""

    @property
    def has_wide(self) -> bool:
        """Whether every id has a linear weight: the last column of its embedding row."""
        return self.kind in ("wide_deep", "deepfm")

    @property
    def row_width(self) -> int:
        """Numbers in one embedding row."""
        return self.embedding_dim + (1 if self.has_wide else 0)


class Synthetic(Section):
    """The seeded generator: Zipf-skewed ids and labels from a planted teacher."""

    rows: Positive = 200_000
    """Examples in one pass; the stream repeats after them."""
    seed: Count = 7
    """Seed of ids and teacher, independent of the run's seed."""
    zipf: Annotated[float, Field(ge=0.0, le=4.0)] = 1.05
    """Exponent of the ids' popularity; 0 is uniform."""
    click_rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.25
    """Share of positive labels."""


class Data(Section):
    """Where examples come from: files of a log, or the generator directly."""

    path: Names | None = None
    """A file, a folder, a pattern such as logs/part-*.parquet, or a list of these; files of a
    pattern or folder in order of name. Parquet, or CSV with a header, which need ``columns``; or
    Criteo text (train.txt, day_0), of whose columns a model may take the first ones; text also as
    .gz. null: the generator feeds directly. Relative to the current directory."""
    label: str | None = None
    """The column of clicks, 0 or 1."""
    columns: tuple[Column, ...] = ()
    """What is read of the files: features, and ids of tables, which follow from it. None: Criteo
    text. `recsim-train data describe` writes them."""
    eval_path: Names | None = None
    """Files of held-out rows, other ones than those of ``path``; null: rows of ``path`` are held
    out."""
    eval_rows: Count = 10_000
    """Held-out examples on which loss, AUC and normalised entropy are measured; 0: none."""
    eval_share: Portion | None = None
    """In place of eval_rows: the same as a share of all rows of the files."""
    eval_from: Literal["start", "end"] = "start"
    """Which rows of the files are held out: the first, or the last, as of a log in order of
    time."""
    shuffle: bool = True
    """Whether row groups are dealt in an order drawn anew each epoch, and rows permuted within some
    16,384 of a loop; false: the files' order."""
    converted: str | None = None
    """Folder for what is made of text, and of Parquet files with row groups above 256 MB; null:
    .recsim-train beside each file."""
    limit_rows: Positive | None = None
    """Training examples read from the files before they start again; none: all."""
    rows: Positive | None = None
    """Examples of one epoch of the data that is meant, which need not be there: what ``simulate
    --epochs`` is of, and nothing else."""
    malformed_limit: Portion = 0.01
    """A run stops where more than this share of the rows read so far is malformed, looked at by
    each reader from 10,000 rows on, and of all rows at the end. Up to there a malformed row is
    replaced by the next well-formed one of its batch. 100 %: no limit."""
    synthetic: Synthetic = Synthetic()
    """The generator's settings: it feeds directly where there is no path, and writes the
    experiment's own path when that file does not exist yet and ``generate`` is set."""
    generate: bool = False
    """Write ``path`` with the generator if it does not exist. Only for a path in the YAML: a path
    given with --set must exist."""
    queue_batches: Positive = 4
    """Capacity of each worker thread's reader queue, in batches. A reader that makes several small
    ones at a time begins when there is room for one."""

    @property
    def holds_out(self) -> bool:
        """Whether any rows are held out."""
        return bool(self.eval_rows if self.eval_share is None else self.eval_share)

    @property
    def texts(self) -> list[bool]:
        """Of each table that follows from columns, whether its ids are read as text: hashed, or
        parts of one."""
        tables = layout_of(self.label or "", self.columns).categorical
        return [table.mapping == "hash" or table.separator is not None for table in tables]

    @staticmethod
    def named(paths: Sequence[str]) -> str:
        """Files in sentences."""
        return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"

    @property
    def said(self) -> str:
        """Where training and held-out rows come from, in one phrase."""
        made = self.synthetic
        source = f"the generator (data.path is null), {made.rows:,} rows of seed {made.seed}"
        if self.path is not None:
            source = self.named(self.path)
        if self.path is not None and self.generate:
            source += " (made by the generator where it does not exist)"
        if self.limit_rows is not None:
            source += f", at most {self.limit_rows:,} rows trained on"
        which = "first" if self.eval_from == "start" else "last"
        rows = f"{self.eval_rows:,} rows"
        if self.eval_share is not None:
            rows = f"{100 * self.eval_share:.4g} %"
        held_out = f"the {which} {rows} of {self.named(self.eval_path) if self.eval_path else 'it'}"
        return f"{source}; held out: {held_out if self.holds_out else 'none'}"


Processes = Annotated[int, Field(ge=0, le=MOST_PROCESSES)]


class Roles(Section):
    """How many instances of each role; 0 servers: their shards live in the trainers."""

    trainers: Annotated[Processes, Field(ge=1)] = 1
    """Trainer processes."""
    embedding_servers: Processes = 0
    """Embedding server processes; 0: table shards live in the trainers' processes."""
    dense_servers: Processes = 0
    """Dense server processes; 0: dense shards live in the trainers' processes."""
    readers: Processes = 0
    """Reader processes; 0: each trainer reads for itself in a background thread."""


class Training(Section):
    """The local side of training."""

    batch_size: Positive = 256
    """Examples per worker thread and iteration."""
    threads: Positive = 1
    """Threads that compute per trainer: Hogwild worker threads, or in lock-step strategies those
    that each operation of the one worker thread runs on. Of all trainers together at most
    250,000."""
    steps: Positive = 100
    """Counted iterations per worker thread, after the warm-up."""
    warmup_steps: Count = 10
    """Iterations per worker thread that are run but not counted."""
    dense_optimizer: Literal["sgd", "adagrad"] = "sgd"
    """Optimizer of the dense parameters, local and on dense servers."""
    dense_lr: Annotated[float, Field(gt=0.0)] = 0.05
    """Learning rate of the dense parameters."""
    sparse_optimizer: Literal["sgd", "rowwise_adagrad"] = "rowwise_adagrad"
    """Optimizer of the embedding rows; its state lives beside the rows."""
    sparse_lr: Annotated[float, Field(gt=0.0)] = 0.05
    """Learning rate of the embedding rows."""


class Placement(Section):
    """How tables are put on embedding shards."""

    split_rows_above: Annotated[float, Field(gt=0.0)] = 1.0
    """A table whose bytes or modelled cost exceed this many times a shard's fair share (total /
    shards) is split by rows over all shards."""
    cost: Literal["modelled", "bytes"] = "modelled"
    """What is balanced: bytes as well as the modelled cost of lookups and updates, or bytes alone.
    That cost is by typical prices, the same with every profile."""


class Simulation(Section):
    """How long the simulator runs."""

    precision: Share = 0.005
    """Stop once the 95 % interval is within this share of the estimate; 0 %: run every step."""
    minimum_steps: Positive = 200
    """Counted iterations per worker thread before an early stop is considered."""
    minimum_iterations: Positive = 3_000
    """With many loops fewer iterations of each will do before an early stop is considered: as many
    as make this many of all together, but at least 16. More than 400 requests in a step: loops
    that stand for others count for them, too."""
    stragglers: bool = True
    """Whether the profile's ``jitter`` and ``stragglers`` count."""
    fold_above: Count | None = None
    """Of more trainers than this about so many are simulated, each of which stands for several
    others; what that changes is estimated and printed. 0: never. Null: 100; where all loops
    together send more than 400 requests in a step, as many as have 64 loops and at least 4, if
    that is half of them or less. In racks those of one rack stand for each other. Where hosts
    differ, fail or share their network with others, each trainer is simulated."""
    what_if_steps: Count | None = None
    """Counted iterations per worker thread of each of 30 to 50 short runs, which tell what 10 %
    more of every resource and price would change, and how far calibration's own errors carry; 0:
    none. Null: 5 where one experiment is simulated, 3 for each point of a sweep, none in
    folders."""
    what_if_trainers: Positive | None = None
    """Of more equal trainers than this, about so many are simulated in the short runs. Null: 8 for
    each point of a sweep; else 16 where trainers are folded, all where they are not."""


class Checkpoint(Section):
    """What a run keeps to go on from, and the model that comes out of it."""

    every: Every | None = None
    """Time, or iterations of each training loop, between two checkpoints, such as "10 min" or
    "1000 steps"; there is one at the end, too. none: there are none."""
    keep: Positive = 3
    """Of complete ones, the last so many; older ones are removed."""
    path: str | None = None
    """The folder in which a run's folder of checkpoints is made; on several machines one that all
    of them see. none: where its results go."""
    init_from: str | None = None
    """A run's directory, a folder of checkpoints, or one checkpoint: training begins with its
    tables and dense net, as far as names and shapes fit. none: with weights that are drawn."""

    @property
    def every_steps(self) -> int | None:
        """Iterations between two."""
        found = every_of(self.every or "")
        return found if isinstance(found, int) else None

    @property
    def every_seconds(self) -> float | None:
        """Seconds between two."""
        found = every_of(self.every or "")
        return found if isinstance(found, float) else None


_PRICED = "the profile's prices say it (checkpoints), which `recsim-train calibrate` measures"


class Recovery(Section):
    """What the job does when a host of the profile fails, or a process of a real run dies."""

    refused: ClassVar[Mapping[str, str]] = {  # of earlier versions
        "checkpoint_every": "checkpoint.every says it, of real runs too",
        "checkpoint_write": _PRICED,
        "checkpoint_standstill": _PRICED,
        "abort": "it is called stop",
        "restart_all_from_checkpoint": "it is called restart",
    }

    policy: Literal["stop", "restart", "continue_without"] = "stop"
    """stop: the run ends, and ``--resume`` goes on from its last checkpoint; restart: all stop
    until the host is back, and what was done since the last checkpoint is lost; continue_without,
    simulated only: the others go on as far as they do not need the host."""


class Execution(Section):
    """How a real run sends requests, is guarded and recorded."""

    refused: ClassVar[Mapping[str, str]] = {
        "transport": "requests always go over connections of recsim-train's own"
    }

    shared_memory: bool = True
    """Whether what processes of one host ask of each other goes through memory that they share,
    where it is large enough; else through a connection like everything between hosts."""
    wire: Literal["full", "float16", "bfloat16"] = "full"
    """Type in which looked-up embeddings, pulled parameters and their gradients travel between
    loops and shards in training; full: the model's own. They are rounded where they are sent and
    computed with in the model's type. bfloat16 keeps the range; float16 rounds less, but what is
    above 65,504 in size becomes infinite, and what is below 3e-8 zero."""
    start_timeout: PositiveDuration = 120.0
    """Longest time from the start of a process until all of the run have come together."""
    timeout: PositiveDuration = 60.0
    """Longest wait for a peer, or silence of one, from then on before the run is given up."""
    compute: Literal["real", "modelled"] = "real"
    """What operations take on emulated hosts: what they take on this machine, or what a prediction
    says, so that larger hosts than there are can be emulated. Modelled, a net's passes are not
    carried out, and there are no losses."""
    max_spans: Count = 50_000
    """Spans kept per process; totals are always exact."""


_EXTENDS = {"type": "object", "minProperties": 1, "properties": {"extends": {"type": "string"}}}
_PROFILE = {"anyOf": [{"type": "string"}, _EXTENDS]}


class Experiment(Section):
    """One experiment: everything that a prediction and a measurement share."""

    name: str
    """Name of the experiment; part of every run directory, of a long one its beginning."""
    model: Model
    data: Data = Data()
    roles: Roles = Roles()
    training: Training = Training()
    strategies: tuple[StrategyChoice, ...]
    """YAML key ``strategy``: a name, a mapping with ``kind`` and options, or a list of those."""
    placement: Placement = Placement()
    cluster: Annotated[str, WithJsonSchema(_PROFILE)] = "local"
    """A profile: a file, or a name under cluster_profiles/; or a mapping, which ``extends`` one of
    these, this machine's unless it says so, and changes what it names of it."""
    seed: Count = 1
    """Seed of initial weights and of everything random."""
    simulation: Simulation = Simulation()
    checkpoint: Checkpoint = Checkpoint()
    recovery: Recovery = Recovery()
    execution: Execution = Execution()
    sweep: Sweep | None = None
    """Settings that take several values, each combination a point of its own."""
    validation: Validation | None = None
    """How `validate` measures the points of the sweep, and what it holds their errors to."""
    search: Search | None = None
    """What `recommend` chooses among."""


class StrategyChoice(Section):
    """A strategy by name with its options, already checked against the strategy's fields."""

    kind: str
    options: dict[str, Any] = Field(default_factory=dict)


Experiment.model_rebuild()
