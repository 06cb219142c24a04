"""``recsim-train simulate``: predict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recsim_train.cli import claims, common
from recsim_train.results.folder import writable

if TYPE_CHECKING:
    from recsim_train.config.load import Loaded

WHAT_IF_STEPS = 5
"""Counted iterations of the short runs where the experiment does not say."""


def simulate(
    experiment: common.ExperimentArgument,
    cluster: common.ClusterOption = None,
    set_: common.SetOption = None,
    seed: common.SeedOption = None,
    out: common.OutOption = Path("runs"),
    json: common.JsonOption = False,
    dry_run: common.DryRunOption = False,
    resume: common.ResumeOption = False,
    jobs: common.JobsOption = None,
) -> None:
    """Predict the throughput of an experiment's strategies on a cluster profile.

    A folder: every experiment in it. A file with a claim: all of its variants, and a verdict.
    A sweep (in the file, or a list of values given to --set): one row for each point.
    """
    settings = claims.Settings(cluster, set_ or (), seed, out, resume)
    if experiment.is_dir():
        claims.simulate_files(claims.files(experiment), settings, json, dry_run)
        return
    loaded = common.load(experiment, set_, seed)
    if loaded.claim is not None:
        claims.simulate_files([experiment], settings, json, dry_run)
        return
    if loaded.sweep is not None:
        from recsim_train.cli.sweep import simulate_sweep

        simulate_sweep(
            experiment,
            cluster=cluster,
            sets=set_,
            seed=seed,
            out=out,
            jobs=jobs,
            json=json,
            dry_run=dry_run,
            resume=resume,
        )
        return
    loaded = _with_what_if(loaded)
    plans = common.plans(loaded)
    if dry_run:
        common.ensure_data(loaded, only_if=False)
        common.show_plans(plans, json, common.known_profile(loaded, cluster))
        return
    profile = common.profile(loaded, cluster)

    from recsim_train.results.rundir import find_complete, write_run
    from recsim_train.sim.fit import check_memory
    from recsim_train.sim.run import simulate as predict

    for plan in plans:
        check_memory(plan, profile)
    writable(out)
    common.ensure_data(loaded, only_if=any(map(common.needs_ids, plans)))
    records = []
    for plan in plans:
        record = find_complete(out, plan, "simulated", profile) if resume else None
        if record is None:
            with common.progress_bar(f"simulating {plan.strategy.kind}") as progress:
                outcome = predict(plan, profile, progress=progress)
            common.say_warnings(outcome)
            common.say_cost(outcome)
            record = write_run(
                out,
                plan=plan,
                world="simulated",
                outcome=outcome,
                cluster=profile,
                environment=common.simulated_environment(),
                command=common.command_line(),
            )
        records.append(record)
    common.show_records(records, json)


def _with_what_if(loaded: Loaded) -> Loaded:
    """One experiment is asked what would change it, unless its settings say how much."""
    simulation = loaded.experiment.simulation
    if simulation.what_if_steps is not None:
        return loaded
    asked = simulation.model_copy(update={"what_if_steps": WHAT_IF_STEPS})
    return replace(loaded, experiment=loaded.experiment.model_copy(update={"simulation": asked}))
