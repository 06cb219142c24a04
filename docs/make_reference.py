"""Writes pages of docs/reference from the code itself; a test fails while a file differs.

python docs/make_reference.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

from recsim_train.config.cluster import (
    Calibration,
    CheckpointPrices,
    Cluster,
    Cooling,
    Costs,
    Host,
    InRuns,
    Loopback,
    Network,
    Scaling,
    Threads,
    Waking,
)
from recsim_train.config.measured import MachineSpeed, MachineSpeeds, MeasuredOperation, Pooled
from recsim_train.config.presets import describe_presets
from recsim_train.config.schema import settings_table
from recsim_train.config.topology import (
    Episodes,
    Failures,
    Hiccups,
    MixedHosts,
    RackTopology,
    Rent,
    ScheduledFailure,
    SlowHosts,
    Stragglers,
    Tail,
    Traffic,
)
from recsim_train.report.naming import words_page
from recsim_train.strategy.options import rows
from recsim_train.strategy.registry import schemas, strategies

FOLDER = Path(__file__).with_name("reference")
COMMANDS = (
    "init", "simulate", "run", "recommend", "report", "validate", "calibrate", "export", "launch",
    "runs list", "runs diff", "cluster new", "data generate", "data describe", "model describe",
    "show strategies", "show presets", "show settings", "show emulation", "show schema",
)  # fmt: skip

PROFILE: dict[str, type[BaseModel]] = {
    "cluster": Cluster,
    "host": Host,
    "rent": Rent,
    "mixed.ROLE[]": MixedHosts,
    "network": Network,
    "network.loopback": Loopback,
    "cooling": Cooling,
    "in_runs": InRuns,
    "checkpoints": CheckpointPrices,
    "topology": RackTopology,
    "background[]": Traffic,
    "stragglers": Stragglers,
    "stragglers.slow[]": SlowHosts,
    "stragglers.episodes[]": Episodes,
    "stragglers.hiccups": Hiccups,
    "stragglers.tail": Tail,
    "failures": Failures,
    "failures.schedule[]": ScheduledFailure,
    "costs": Costs,
    "threads": Threads,
    "threads.wake": Waking,
    "threads.CLASS": Scaling,
    "operations[]": MeasuredOperation,
    "operations[].pooled": Pooled,
    "calibration": Calibration,
    "calibration.machine_speed": MachineSpeeds,
    "calibration.machine_speed.before": MachineSpeed,
}
"""Sections of a cluster profile by key."""

MADE = """\
Made by `python docs/make_reference.py` from the code; edit the code, not this file.
Words are explained in the [glossary](words.md).
"""
CODES = """\
## Exit codes

| code | meaning |
|---|---|
| 0 | fine |
| 1 | a run failed, its model diverged, or output cannot be written; what was measured is kept |
| 2 | the input is wrong, and that was known before anything started |
| 3 | `report --max-error` or a gate of `validate` fails, or `recommend` says no |
| 130 | ended by Ctrl-C; finished parts are kept, and the command that goes on is printed |
| 143 | ended by SIGTERM, in the same way |
| 141 | nobody reads the output any more, as after `head`; what is on disk is kept |
"""
QUANTITIES = """\
A quantity has a unit: `25 Gbit/s`, `3 GB/s`, `2.8 GiB/s` (three different rates), `50 us`,
`4 MiB`, `5 %`.
A number without a unit is refused where a unit is due.
"""


def cell(text: object) -> str:
    """Text on one line, safe inside a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def command_help(command: str) -> str:
    """What ``--help`` of a command prints, without the terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "recsim_train", *command.split(), "--help"],
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"},
    )  # fmt: skip
    text = done.stdout.replace("python -m recsim_train", "recsim-train")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def commands() -> str:
    """The page of commands."""
    parts = ["# Commands\n", MADE, CODES]
    parts += [f"## {c}\n\n```\n{command_help(c)}\n```\n" for c in COMMANDS]
    return "\n".join(parts)


def settings() -> str:
    """The page of an experiment's settings, strategies' options and presets."""
    parts = ["# Settings of an experiment\n", MADE, QUANTITIES]
    parts.append("## Every setting and its dotted name for `--set`\n")
    parts.append("| name | type | default | meaning |\n|---|---|---|---|")
    for row in settings_table():
        parts.append(
            f"| `{row.name}` | {cell(row.type)} | {cell(row.default)} | {cell(row.meaning)} |"
        )
    parts.append("\n## Options of the strategies\n\nWhat each does: [strategies](strategies.md).\n")
    options = schemas()
    for kind, strategy in strategies().items():
        within = "lock-step, one worker thread per trainer with operations on training.threads"
        step = within if strategy.lock_step else "free-running, training.threads worker threads"
        parts.append(f"### {kind}\n\n{strategy.summary}; {step}. Source: {strategy.source}.\n")
        parts.append("| option | default | meaning |\n|---|---|---|")
        for name, default, means in rows(options[kind]):
            parts.append(f"| `strategy.{name}` | {default} | {cell(means)} |")
        parts.append("")
    return "\n".join([*parts, "## Model presets\n\n```", *describe_presets(), "```"])


def profile() -> str:
    """The page of a cluster profile's fields."""
    parts = ["# Fields of a cluster profile\n", MADE, QUANTITIES]
    for key, section in PROFILE.items():
        parts.append(f"## {key}\n\n| field | meaning |\n|---|---|")
        for name, field in section.model_fields.items():
            if field.description:
                parts.append(f"| `{name}` | {cell(field.description)} |")
        parts.append("")
    return "\n".join(parts)


def words() -> str:
    """The glossary, of which pages of reports show what they use."""
    made = (
        "Made by `python docs/make_reference.py` from `recsim_train/report/words.md`; edit that.\n"
    )
    return f"# Glossary\n\n{made}\n{words_page()}"


def build() -> dict[Path, str]:
    """Every page by its file."""
    pages = {
        "commands": commands(), "settings": settings(), "profile": profile(), "words": words()
    }  # fmt: skip
    return {FOLDER / f"{name}.md": text.rstrip() + "\n" for name, text in pages.items()}


if __name__ == "__main__":
    for path, text in build().items():
        path.write_text(text, encoding="utf-8")
