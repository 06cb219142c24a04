"""``recsim-train model``: describe the net of an experiment."""

from __future__ import annotations

import typer

from recsim_train.cli import common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _model() -> None:
    pass


@app.command(
    "describe",
    short_help="The net's parameters and work; tries a module of one's own.",
    epilog=common.examples("model describe mine.yaml", "model describe mine.yaml --json"),
)
@common.guarded
def describe(
    experiment: common.ExperimentArgument,
    set_: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Parameters by name and shape, and what the net's passes do for an example.

    A module of one's own (model.module) is tried first, in a process of its own: a rule of training
    that it breaks is said in a sentence. What is found is kept in .recsim-train beside its file.
    """
    from recsim_train import calls
    from recsim_train.workload.graph import graph_of

    model = calls.load(experiment, overrides=set_ or ()).experiment.model
    found, graph = model.described, graph_of(model)
    if json:
        tensors = {name: list(shape) for name, (_, shape) in graph.tensors().items()}
        known = None if found is None else found.model_dump(mode="json")
        common.print_json({"parameters": tensors, "elements": graph.elements, "module": known})
        return
    for name, (_, shape) in graph.tensors().items():
        common.tell(f"{name} [{', '.join(map(str, shape))}]")
    common.tell(f"{graph.elements:,} numbers in all")
    if found is None:
        return
    for name, counts in (("forward", found.forward), ("backward", found.backward)):
        common.tell(
            f"{name}: {counts.flops:,.0f} floating-point operations and {counts.bytes:,.0f} bytes "
            f"beside them for an example, {counts.operators} operators of torch"
        )
    common.tell(f"kept between them: {found.kept_bytes:,.0f} bytes for an example")
    if found.draws:
        common.tell("draws random numbers while it trains, by seed, loop and batch")
    if found.buffers:
        common.tell(f"buffers: {', '.join(one.name for one in found.buffers)}")
    common.tell(f"counted as bytes only: {', '.join(found.not_counted)}")
