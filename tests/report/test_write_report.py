from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from recsim_train.config.errors import RunFailed, UserError
from recsim_train.report import publish
from recsim_train.report.write import report_on
from recsim_train.trace.facts import Reliability


@pytest.fixture
def runs(tmp_path: Path, factory: Any) -> Path:
    for kind in ("flat_ps", "allreduce"):
        plan = factory.plan(kind)
        factory.write(tmp_path / "runs", plan, "simulated")
        outcome = factory.outcome(plan, world="real", jitter=0.1, slow={"lookup": 1.4})
        factory.write(tmp_path / "runs", plan, "real", found=outcome)
    return tmp_path / "runs"


class Links(html.parser.HTMLParser):
    """Everything that a page would fetch or link."""

    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_everything_is_written(runs: Path, tmp_path: Path) -> None:
    result = report_on([runs], tmp_path / "report")
    names = {p.relative_to(tmp_path / "report").as_posix() for p in result.out.rglob("*.*")}
    figures = ("throughput", "breakdown", "loss", "timeline-1", "timeline-2", "utilisation-1")
    for name in figures:
        assert {f"figures/{name}.svg", f"figures/{name}.png"} <= names
    assert {"summary.json", "summary.md", "report.html", "trace-1-allreduce.json"} <= names
    assert json.loads((result.out / "summary.json").read_text()) == result.document
    trace = json.loads((result.out / "trace-2-flat-ps.json").read_text())
    processes = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert {"simulated trainer[0]", "real trainer[1]"} <= processes
    assert not [name for name in names if name.endswith(".part")]


def test_the_same_runs_give_the_same_report(runs: Path, tmp_path: Path) -> None:
    def content() -> dict[str, bytes]:
        out = report_on([runs], tmp_path / "report").out
        return {str(p): p.read_bytes() for p in out.rglob("*.*") if p.is_file()}

    assert content() == content()


def test_the_page_needs_nothing_from_outside(runs: Path, tmp_path: Path) -> None:
    result = report_on([runs], tmp_path / "report")
    parser = Links()
    text = result.page.read_text(encoding="utf-8")
    parser.feed(text)
    assert parser.open == []
    assert not parser.tags & {"iframe", "object", "embed", "img"}
    assert text.count("<script") == text.count("<script>") == 1
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy[1].startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policy[1]
    outside = [x for x in parser.links if not x.startswith(("#", "data:")) and x]
    assert set(outside) == {
        "https://ui.perfetto.dev",
        "trace-1-allreduce.json",
        "trace-2-flat-ps.json",
    }
    assert "url(http" not in text
    assert "@import" not in text


def test_the_page_says_what_was_found(runs: Path, tmp_path: Path) -> None:
    result = report_on([runs], tmp_path / "report")
    page = re.sub(r"\s+", " ", result.page.read_text(encoding="utf-8").replace("\u00a0", " "))
    for c in result.findings.comparisons:
        assert f"{c.headline}." in page
        assert all(sentence in page for sentence in c.why.sentences)  # type: ignore[union-attr]
    for words in (
        "Testium 9000, 4 cores",
        "recsim-train simulate experiments/quickstart.yaml",
        "recsim-train run experiments/quickstart.yaml",
        "recsim-train report",
        "normalised entropy",
        "What binds the prediction: cores of the machine",
        'name="viewport"',
        "prefers-color-scheme: dark",
    ):
        assert words in page
    assert "Payload bytes disagree" not in page


def test_disagreeing_bytes_are_loud_everywhere(tmp_path: Path, factory: Any) -> None:
    from rich.console import Console

    from recsim_train.report.terminal import show

    plan = factory.plan()
    factory.write(tmp_path, plan, "simulated")
    wrong = factory.outcome(plan, world="real", sent={"push": (4004, 0)})
    factory.write(tmp_path, plan, "real", found=wrong)
    result = report_on([tmp_path], tmp_path / "report")
    page = result.page.read_text(encoding="utf-8")
    assert 'role="alert"' in page
    assert "flat_ps, push: 16,000 bytes per counted step predicted, 16,016 measured" in page
    assert "**Payload bytes disagree" in (result.out / "summary.md").read_text()
    shown = Console(file=io.StringIO(), width=120)
    show(result.report, shown)
    printed = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "payload bytes disagree: flat_ps, push: 16,000 per step predicted, 16,016" in printed


def test_foreign_text_is_escaped(tmp_path: Path, factory: Any) -> None:
    evil = "<script>alert(1)</script>"
    plan = factory.plan(name=f"x{evil}", training={"batch_size": 2000})
    profile = factory.cluster(name=f"p{evil}", calibration=None)
    factory.write(tmp_path, plan, "simulated", profile=profile)
    factory.write(
        tmp_path,
        plan,
        "real",
        status="partial",
        message=f"m{evil}",
        surroundings=factory.environment(machine=evil, host=evil, versions={"torch": evil}),
    )
    outcome = factory.outcome(plan, world="real")
    outcome.utilisation = {evil: 0.5}
    factory.write(tmp_path, plan, "real", found=outcome, status="partial")
    result = report_on([tmp_path], tmp_path / "report")
    text = result.page.read_text(encoding="utf-8")
    assert text.count("<script") == 1  # our own
    assert "&lt;script&gt;" in text
    assert "<script" not in (result.out / "summary.md").read_text().replace("\\<script", "")


def test_nothing_to_compare_still_gives_a_report(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    outcome = factory.outcome(plan, world="simulated")
    outcome.warn(["only a part is simulated."])
    outcome.facts.reliability = Reliability(
        policy="continue_without", failures=2, first_failures=(), checkpoints=0,
        standstill_seconds=0.0, lost_examples=10.0, goodput=500.0,
    )  # fmt: skip
    factory.write(tmp_path / "runs", plan, "simulated", found=outcome)
    result = report_on([tmp_path / "runs"], tmp_path / "report")
    page = result.page.read_text(encoding="utf-8")
    assert "only a part is simulated." in page
    assert "What binds the prediction" in page
    for text in (page, (result.out / "summary.md").read_text(encoding="utf-8")):
        assert "2 failures and 0 checkpoints" in text
    assert "No prediction is paired with a measurement." in page
    assert "no measurement of this strategy was given" in page
    assert result.document["comparisons"] == []
    assert not result.findings.within(10.0)


def test_a_pair_without_spans_or_utilisation(tmp_path: Path, factory: Any) -> None:
    plan = factory.plan()
    for world in ("simulated", "real"):
        outcome = factory.outcome(plan, world=world)
        outcome.spans, outcome.utilisation, outcome.dropped_spans = [], {}, 99
        factory.write(tmp_path, plan, world, found=outcome)
    result = report_on([tmp_path], tmp_path / "report")
    names = {p.stem for p in (result.out / "figures").iterdir()}
    assert names == {"throughput", "breakdown", "loss"}
    assert any("99 were beyond" in w for w in result.findings.comparisons[0].warnings)


def test_bad_targets(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="file: cannot be used as a folder: File exists"):
        report_on([runs], tmp_path / "file")
    with pytest.raises(UserError, match="report: cannot be used as a folder: "):
        report_on([runs], Path("/proc/report"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish, "put", full)
    with pytest.raises(RunFailed, match="could not be written: No space left on device"):
        report_on([runs], tmp_path / "report")


def test_tables_for_the_terminal(runs: Path, tmp_path: Path) -> None:
    from rich.console import Console

    from recsim_train.report.runs import finished, load_runs
    from recsim_train.report.terminal import show

    records = load_runs([runs])
    shown = Console(file=io.StringIO(), width=200)
    show(finished(records), shown)
    show(report_on([runs], tmp_path / "report").report, shown)
    printed = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "cores of the machine" in printed
    assert "0.7410" in printed
    assert str(records[0].path) in printed
    assert "why: flat_ps" in printed
    assert f"page: {tmp_path / 'report' / 'report.html'}" in printed
    # A column that no run fills is left out.
    simulated = [r for r in records if r.world == "simulated"]
    only = Console(file=io.StringIO(), width=200)
    show(finished(simulated), only)
    assert "AUC" not in only.file.getvalue()  # type: ignore[attr-defined]


def test_importing_the_report_is_cheap() -> None:
    import subprocess

    code = (
        "import sys, recsim_train.report.write, recsim_train.report.terminal\n"
        "import recsim_train.results.rundir, recsim_train.trace.perfetto\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'pyarrow', 'jinja2', 'rich'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    assert done.returncode == 0
