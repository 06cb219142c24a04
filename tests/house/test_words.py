"""What binds is said by `recsim_train.report`: no other module reads the sentence that it makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recsim_train.report.naming import bottleneck
from recsim_train.trace.binding import NAMES, Binding

PACKAGE = Path(__file__).parents[2] / "recsim_train"
TAKEN_APART = {
    "partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix",
    "removesuffix", "find", "index", "count", "replace", "match", "fullmatch", "search", "sub",
    "findall", "finditer",
}  # fmt: skip
"""Methods of text and of regular expressions, by which a sentence is read."""
SERIAL = ("own_compute", "compute", "readers", "queueing", "transfer", "waiting", "unknown")
SAID = [str(bottleneck(Binding(what, "machine.cores", share=0.5))) for what in SERIAL]
WORDS = [
    *(name.partition(" {}")[0] for name in NAMES.values()),
    *(re.split(r" \(|:", said)[0] for said in SAID),
    "no resource is saturated",
]
"""Of which such a sentence consists."""


def read(source: str) -> Iterator[int]:
    """Lines that take a sentence about what binds apart, or look for its words in another."""
    for node in ast.walk(ast.parse(source)):
        looked_into: list[ast.expr] = []
        asked: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in TAKEN_APART:
                looked_into, asked = [node.func.value, *node.args], node.args
        elif isinstance(node, ast.Compare):
            looked_into = asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            looked_into = [node.value]
        named = {n for e in looked_into for n in names(e)}
        texts = [str(t.value) for e in asked for t in ast.walk(e) if isinstance(t, ast.Constant)]
        if "bottleneck" in named or any(of_it(text) for text in texts):
            yield node.lineno


def of_it(text: str) -> bool:
    """Whether a text has some of its words, or begins as they do."""
    return any(word in text or (" " in text and word.startswith(text)) for word in WORDS)


def names(expression: ast.expr) -> Iterator[str]:
    """Variables, fields and keys whose value it is, or part of."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            if node.func.attr == "get" and isinstance(first, ast.Constant):
                yield str(first.value)


def test_no_module_but_the_report_reads_what_it_says_of_what_binds() -> None:
    files = [p for p in PACKAGE.rglob("*.py") if p.parent.name != "report"]
    assert len(files) > 300
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(files)
        for line in read(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'bottleneck.partition(":")',
        'row["bottleneck"].split(" (")[0]',
        'str(row.get("bottleneck") or "").startswith("cores")',
        're.sub("x", "", summary.bottleneck)',
        'binding = words.startswith("interpreter lock")',
        'if "waiting for readers" in said: pass',
        'kind = "latency" if said == "bytes on their way" else ""',
        're.search(r"NIC send of (.*)", said)',
        "summary.bottleneck[:5]",
    ],
)
def test_what_would_be_found(source: str) -> None:
    assert list(read(source))


def test_passing_it_on_is_no_reading() -> None:
    assert not list(read('said = {"bottleneck": bottleneck(binding_of(row))}'))
    assert not list(read('print(f"bound by {run.bottleneck}", row["bottleneck"])'))
    assert not list(read('known = row.get("bottleneck")'))
