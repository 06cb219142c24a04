"""``recsim-train init``: a first experiment and a first cluster profile, to be edited."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recsim_train.cli import cluster, common

FIRST = "quickstart"


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Made if need be.", parser=common.path_of)
    ],
) -> None:
    """Write a first experiment (mine.yaml) and the profile of a cluster that is to be described
    (cluster_profiles/mine.yaml)."""
    from recsim_train.config.errors import UserError
    from recsim_train.config.shipped import find_experiment
    from recsim_train.results.folder import put, writable

    experiment, profile = folder / "mine.yaml", folder / "cluster_profiles" / "mine.yaml"
    if there := next((path for path in (experiment, profile) if path.exists()), None):
        raise UserError(f"{there} exists already: nothing was written")
    writable(folder)
    text = find_experiment(Path(FIRST)).read_text(encoding="utf-8")
    head, name, rest = text.partition(f"name: {FIRST}\n")
    assert name, head
    here = next(line for line in rest.splitlines() if line.startswith("cluster: "))
    described = (
        "cluster: mine         # cluster_profiles/mine.yaml; local: this machine, measured once"
    )
    own = rest.replace(here, described)
    put(experiment, f"# A first experiment, to be edited.\nname: mine\n{own}".encode())
    cluster.new(profile)
    common.say(f"wrote {experiment}; in {folder}: recsim-train simulate mine.yaml")
