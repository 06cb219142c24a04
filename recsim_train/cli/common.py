"""What all commands share: settings, exit codes, messages, progress."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from recsim_train.results.folder import writable

if TYPE_CHECKING:
    from recsim_train.config.cluster import Cluster
    from recsim_train.config.experiment import Experiment
    from recsim_train.config.load import Loaded
    from recsim_train.placement.plan import Plan
    from recsim_train.results.rundir import RunRecord
    from recsim_train.trace.record import Outcome

P = ParamSpec("P")

FAILED, BAD_INPUT, GATE_FAILED = 1, 2, 3

ExperimentArgument = Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="Experiment YAML.")]


def _profile_name(name: str | None) -> str | None:
    """An empty name is a variable that was not set, not a wish for the experiment's profile."""
    if name is not None and not name.strip():
        from recsim_train.config.load import NO_PROFILE_NAME

        raise typer.BadParameter(NO_PROFILE_NAME)
    return name


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="PROFILE",
        help="Cluster profile: a file or a name.",
        callback=_profile_name,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; may be repeated."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Seed; overrides the YAML.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run directories go.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; all else goes to stderr.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check everything, print the plan, start nothing.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Keep the runs that are complete, do the others.")
]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Processes that simulate a sweep's points; all cores."),
]


def say(text: str) -> None:
    """A message to the person: standard error, so that --json stays one document."""
    print(text, file=sys.stderr, flush=True)


def say_warnings(outcome: Outcome) -> None:
    """What a world wants to be known about its own figures."""
    warnings = outcome.facts.get("warnings")
    for sentence in warnings if isinstance(warnings, list) else ():
        say(f"note: {sentence}")


def say_cost(outcome: Outcome) -> None:
    """What the question "what if" has cost."""
    asked = outcome.facts.get("what_if")
    if isinstance(asked, dict):
        say(
            f"what-if: {asked['runs']} short runs with {asked['cost']:.1f} times the events of the "
            "prediction itself (simulation.what_if_steps=0 leaves them out)"
        )


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn failures into one message and an exit code: never a traceback for the user's input."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from recsim_train.config.errors import RunFailed, UserError

        try:
            command(*args, **kwargs)
        except UserError as error:
            say(f"error: {error}")
            raise typer.Exit(BAD_INPUT) from None
        except RunFailed as error:
            say(f"failed: {error}")
            raise typer.Exit(FAILED) from None
        except BrokenPipeError:
            raise  # nobody reads our output any more, see `recsim_train.__main__`
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            say(f"failed: {where}{error.strerror or error}")
            raise typer.Exit(FAILED) from None

    return run


def load(path: Path, sets: Sequence[str] | None, seed: int | None) -> Loaded:
    """The checked experiment with all overrides; of a sweep, its first point."""
    from recsim_train.config.load import load_experiment
    from recsim_train.strategy.registry import schemas

    return load_experiment(path, overrides(sets, seed), schemas())


def load_points(path: Path, sets: Sequence[str] | None, seed: int | None) -> list[Loaded]:
    """Every checked point of a sweep with all overrides."""
    from recsim_train.config.load import load_points as load_all
    from recsim_train.strategy.registry import schemas

    return load_all(path, overrides(sets, seed), schemas())


def overrides(sets: Sequence[str] | None, seed: int | None) -> list[str]:
    """``--set`` and ``--seed`` together."""
    return [*(sets or []), *([f"seed={seed}"] if seed is not None else [])]


def profile(loaded: Loaded, name: str | None) -> Cluster:
    """The cluster profile of an experiment; this machine's is measured when it is missing."""
    from recsim_train.config.load import find_cluster, load_cluster

    wanted = name or loaded.experiment.cluster
    if wanted == "local" and find_cluster(wanted, loaded.path) is None:
        target = Path("cluster_profiles/local.yaml")
        say(f"no profile of this machine at {target}: measuring it now, once, about two minutes")
        calibrate_to(target)
    return load_cluster(wanted, loaded.path, loaded.profile_sets)


def calibrate_to(target: Path) -> None:
    """Measure this machine and write its profile."""
    from recsim_train.calibrate.profile import calibrate_machine
    from recsim_train.config.dump import dump_cluster

    writable(target.parent)
    with progress_bar("calibrating") as progress:
        cluster = calibrate_machine(name=target.stem, command=command_line(), progress=progress)
    text = dump_cluster(cluster, "Written by `recsim-train calibrate`; edit a copy, not this file.")
    part = target.with_name(f".{target.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)
    say(f"wrote {target}")


def known_profile(loaded: Loaded, name: str | None) -> Cluster | None:
    """The cluster profile of an experiment; None: this machine was not measured yet."""
    from recsim_train.config.load import find_cluster

    wanted = name or loaded.experiment.cluster
    if wanted == "local" and find_cluster(wanted, loaded.path) is None:
        return None
    return profile(loaded, name)


def plans(loaded: Loaded) -> list[Plan]:
    """One checked plan per strategy of the experiment."""
    from recsim_train.placement.build import build_plan

    made = [build_plan(loaded.experiment, choice) for choice in loaded.experiment.strategies]
    for plan in made:
        for note in plan.notes:
            say(f"note: {note}")
    return made


def print_json(document: object) -> None:
    """One document on standard output."""
    print(json.dumps(document, indent=2, allow_nan=False))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress callback (done, total): a bar on a terminal, a line per tenth elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=None)

            def draw(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            yield draw
        return
    tenths = 0

    def line(done: int, total: int) -> None:
        nonlocal tenths
        if total and done * 10 // total > tenths:
            tenths = done * 10 // total
            say(f"{title}: {tenths * 10} %")

    yield line


def command_line() -> list[str]:
    """The command as the user may repeat it."""
    return ["recsim-train", *sys.argv[1:]]


def document(records: Sequence[RunRecord]) -> dict[str, object]:
    """The JSON document of some finished runs."""
    from recsim_train.results.rundir import run_document

    return {"runs": [run_document(record) for record in records]}


def needs_ids(plan: Plan) -> bool:
    """Whether sizes of this plan depend on the data, so that predicting needs the file."""
    embedding = plan.embedding
    if embedding is None:
        return False
    variable = any(table.variable for table in plan.experiment.model.tables)
    return variable or bool(embedding.split_tables) or embedding.service.pooling == "worker"


def ensure_data(loaded: Loaded, *, only_if: bool = True) -> None:
    """Make the experiment's own data file if it asks for that, and check the file.

    Raises UserError. A file that is to be made yet is neither made nor checked unless ``only_if``.
    """
    from recsim_train.data.stream import check_data

    data = loaded.experiment.data
    if data.path is None:
        return
    path = Path(data.path)
    if data.generate and not path.exists():
        if not only_if:
            return
        rows = data.synthetic.rows
        say(f"{path} does not exist yet: writing {rows:,} rows of Criteo text with the generator")
        generate(loaded.experiment, path, rows)
    check_data(loaded.experiment.model, data)


def generate(experiment: Experiment, target: Path, rows: int) -> None:
    """Write Criteo text with the generator."""
    from recsim_train.data.synthetic import write_criteo

    writable(target.parent)
    with progress_bar(f"writing {target}") as progress:
        write_criteo(target, experiment.model, experiment.data.synthetic, rows, progress=progress)


def check_local_memory(plan: Plan) -> None:
    """Refuse a run whose tables can not fit into this machine."""
    import psutil

    from recsim_train.config.cluster import Host
    from recsim_train.sim.fit import check_machine

    memory = psutil.virtual_memory().total
    host = {"cores": os.cpu_count() or 1, "memory": f"{memory} B", "nic": "1 GB/s"}
    check_machine(plan, Host.model_validate(host))


def simulated_environment() -> dict[str, object]:
    """Versions only: equal inputs give equal files."""
    from recsim_train.results.environment import versions

    return {"versions": versions()}


def real_environment() -> dict[str, object]:
    """Machine, versions, load, time and revision of a measurement."""
    from recsim_train.results.environment import machine

    return machine()


def show_plans(made: Sequence[Plan], json_wanted: bool, cluster: Cluster | None = None) -> None:
    """Print what would be started, and whether it fits into the hosts of ``cluster``.

    Raises UserError after that if it does not.
    """
    from recsim_train.config.errors import UserError
    from recsim_train.placement.describe import describe, plan_document
    from recsim_train.sim.fit import fit

    fits = [None if cluster is None else fit(plan, cluster) for plan in made]
    if json_wanted:
        documents = [
            plan_document(plan) | ({} if found is None else {"memory": found.document()})
            for plan, found in zip(made, fits, strict=True)
        ]
        print_json({"plans": documents})
    for plan, found in zip(made, fits, strict=True):
        if not json_wanted:
            print(describe(plan))
        if found is not None and not json_wanted:
            print(f"  memory: {found.phrase}")
        for warning in () if found is None else found.warnings:
            say(f"note: {warning}")
    problems = [f.problem for f in fits if f is not None and f.problem]
    if problems:
        raise UserError("\n".join(problems))


def show_records(records: Sequence[RunRecord], json_wanted: bool) -> None:
    """Print finished runs: one JSON document, or a table."""
    found = document(records)
    for record in records:
        malformed = record.summary.get("facts", {}).get("malformed")
        if malformed:
            say(f"note: {record.run_id}: malformed rows were replaced: {malformed}")
    if json_wanted:
        print_json(found)
        return
    from recsim_train.report.runs import finished
    from recsim_train.report.terminal import show

    show(finished(found))
