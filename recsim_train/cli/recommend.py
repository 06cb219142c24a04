"""``recsim-train recommend``: which design, on how many hosts, and what it costs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recsim_train.cli import common, shown
from recsim_train.designs.wanted import By

if TYPE_CHECKING:
    from recsim_train.designs.space import Space


def _target(text: str) -> float:
    """Examples per second: "2M examples/s", or the number alone."""
    number = re.sub(r"\s*examples\s*/\s*s(ec|econd)?$", "", text.strip())
    try:
        return common.count(number)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"expected examples per second such as '2M examples/s', got {text!r}"
        ) from None


def recommend(
    experiment: common.ExperimentArgument,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="RATE",
            parser=_target,
            help="Examples per second at least, such as '2M examples/s'. Exit code 3 where no "
            "design found gives them.",
        ),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(
            "--hosts",
            min=1,
            help="Hosts at most; default: as the search, the racks or the roles say.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="AMOUNT",
            help="Money at most, such as '50 USD/h' or '36k USD/month' (of 730 h), in the "
            "profile's currency (rent).",
        ),
    ] = None,
    by: Annotated[
        By | None,
        typer.Option(
            "--by",
            help="What counts: with a target the least cost per hour, or the fewest hosts, that "
            "reach it; without one cost per example, or examples/s per host. Default: with a "
            "target cost, or hosts where they have no price; else throughput.",
        ),
    ] = None,
    likely: Annotated[
        bool,
        typer.Option(
            "--likely", help="Hold the prediction itself to the target, not its interval's end."
        ),
    ] = False,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    seed: common.SeedOption = None,
    out: common.OutOption = Path("runs"),
    json: common.JsonOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the designs that there are, and their number.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what an interrupted search has found.")
    ] = False,
    measure: Annotated[
        int,
        typer.Option(
            "--measure",
            metavar="K",
            min=0,
            help="Run the first K designs on emulated hosts of this machine, with modelled "
            "compute, and put the measurements beside the predictions.",
        ),
    ] = 0,
    jobs: common.JobsOption = None,
) -> None:
    """Find the strategy and the division of hosts that answer best.

    Designs come from the experiment's strategies and its `search`; without one, all strategies and
    usual divisions of the hosts are tried. A step of the job has the examples of the experiment as
    written (its first strategy, trainers, threads and batch), which a design's loops share; designs
    that cannot have them within 2 % are left out, unless search.any_step is set.
    """
    from recsim_train import calls
    from recsim_train.results.environment import cores

    study = calls.load(experiment, cluster, set_ or (), seed)
    if dry_run:
        from recsim_train.designs.making import demand, space

        designs = space(study, hosts, common.caller(), dry=True)
        demand(designs, target, budget, by, likely)
        _show_space(designs, json)
        return
    from recsim_train.designs.answer import NoDesignError

    try:
        made = calls.recommend(
            study,
            target=target,
            hosts=hosts,
            budget=budget,
            by=by,
            likely=likely,
            out=out,
            resume=resume,
            measure=measure,
            processes=jobs or cores(),
            caller=common.caller(),
        )
    except NoDesignError as error:
        if json:
            common.print_json({"met": False, "why": str(error)})
        common.say(f"no: {error}")
        raise typer.Exit(common.GATE_FAILED) from None
    shown.show_report(made, json)
    if target is not None and not made.met:
        raise typer.Exit(common.GATE_FAILED)


def _show_space(space: Space, json: bool) -> None:
    designs, impossible = len(space.candidates), sum(space.impossible.values())
    if json:
        document = {"designs": designs, "impossible": space.impossible, "axes": space.axes}
        counts = {"other_step": space.other_step, "hosts": space.most_hosts}
        common.print_json({**document, **counts})
        return
    common.tell(f"{designs:,} designs on at most {space.most_hosts:,} hosts")
    kinds = Counter(candidate.job.plan.strategy.kind for candidate in space.candidates)
    common.tell(f"  strategies: {', '.join(f'{kind} ({count})' for kind, count in kinds.items())}")
    for name, values in space.axes.items():
        common.tell(f"  {name}: {', '.join(values)}")
    if impossible:
        first = next(iter(space.impossible))
        common.tell(f"  {impossible:,} combinations cannot be; the first: {first}")
    if space.other_step:
        common.tell(f"  {space.other_step:,} have other examples in a step (search.any_step)")
