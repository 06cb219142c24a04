"""The YAML reader: text to plain data, and where each value stands; and how text is written.

Scalars resolve as in YAML 1.2: ``1e3`` is a number, ``on`` and ``yes`` are text, ``010`` is ten,
dates are text. Underscores may group digits. Duplicate keys, tags and infinities are refused.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from recsim_train.config.errors import UserError
from recsim_train.config.problems import (
    KEY,
    ConfigErrors,
    KeyPath,
    Mark,
    Marks,
    Problem,
    dotted,
    suggest,
)

LARGEST_FILE = 16 * 2**20
"""Bytes; a larger file is no configuration."""
LARGEST_INTEGER = 2**63 - 1
_MOST_VALUES = 200_000
_TAG = "tag:yaml.org,2002:"
_DIGITS = "[0-9](?:_?[0-9])*"

RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", rf"^(?:[-+]?{_DIGITS}|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        rf"^[-+]?(?:\.{_DIGITS}|{_DIGITS}(?:\.(?:{_DIGITS})?)?)(?:[eE][-+]?[0-9]+)?$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
)
"""Type, pattern and first characters of plain scalars; "\\0" stands for the empty text."""


def install_resolvers(cls: Any) -> None:
    """Give a PyYAML loader or dumper class the rules of this module instead of YAML 1.1's."""
    cls.yaml_implicit_resolvers = {}
    for kind, pattern, first in RESOLVERS:
        cls.add_implicit_resolver(
            _TAG + kind, re.compile(pattern), [c if c != "\0" else "" for c in first]
        )


class _Loader(yaml.SafeLoader):
    """Only composes nodes; values are made here."""


install_resolvers(_Loader)


class Dumper(yaml.SafeDumper):
    """Quotes exactly the text that our loader would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal parts are written out: an alias helps no reader of a profile."""
        return True


install_resolvers(Dumper)


@cache
def one_line(text: str) -> str:
    """Text as YAML on one line, in lists and mappings, too: quoted where it would be read as
    something else."""
    plain = yaml.dump(
        [text], Dumper=Dumper, default_flow_style=True, allow_unicode=True, width=math.inf
    )
    quoted = yaml.dump(text, Dumper=Dumper, default_style='"', allow_unicode=True, width=math.inf)
    return text if plain == f"[{text}]\n" else quoted.strip()


@dataclass(slots=True)
class YamlDocument:
    """Plain data (dict, list, str, int, float, bool, None) with the marks of its values."""

    file: str
    data: dict[str, Any]
    marks: Marks = field(default_factory=Marks)

    def copy(self) -> YamlDocument:
        """One that can be changed without changing this one."""
        return YamlDocument(self.file, copy.deepcopy(self.data), Marks(self.marks))


def read_document(path: Path, what: str) -> YamlDocument:
    """Read a YAML file whose top level is a mapping. ``what``: "an experiment".

    Raises UserError (one sentence) if the file cannot be read, ConfigErrors for what it says.
    """
    return parse_document(read_text(path, what), str(path), what)


def parse_document(text: str, file: str, what: str) -> YamlDocument:
    """As `read_document`, for text that is already there."""
    node, data, marks, problems = parse_yaml(text, file)
    if node is None or (isinstance(node, ScalarNode) and not node.value):
        raise UserError(f"{file}: the file is empty; expected {what} in YAML")
    if problems:
        raise ConfigErrors(problems, file)
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        message = f"expected {what}: a mapping of keys to values at the top level, not {kind}"
        raise ConfigErrors([Problem(marks[()], "", message)], file)
    # With nothing but the document to point at, its first line would only mislead.
    marks[()] = replace(marks[()], text="")
    return YamlDocument(file, data, marks)


class Parsed(NamedTuple):
    """One YAML document."""

    node: Node | None
    """None: there is nothing in it."""
    data: Any
    marks: Marks
    problems: list[Problem]
    """With what it says; of an invalid one nothing is made at all."""


def parse_yaml(text: str, where: str, at: KeyPath = ()) -> Parsed:
    """Any YAML document. ``at``: the place that it has in a larger one.

    Raises ConfigErrors if it is not valid YAML.
    """
    builder = Builder(where, text.splitlines())
    try:
        node = yaml.compose(text, Loader=_Loader)
        data = None if node is None else builder.build(node, at)
    except yaml.reader.ReaderError as error:
        # Without a stream, PyYAML's position is the index of the character.
        before = text[: error.position]
        place = yaml.Mark("", 0, before.count("\n"), len(before.rpartition("\n")[2]), None, 0)
        message = f"not valid YAML: control character 0x{error.character:02x}"
        raise ConfigErrors([Problem(builder.mark(place), "", message)], where) from None
    except yaml.MarkedYAMLError as error:
        mark = builder.mark(error.problem_mark or error.context_mark)
        raise ConfigErrors([Problem(mark, "", _plain_words(error, mark.text))], where) from None
    except RecursionError:
        raise UserError(
            f"{where}: not valid here: values are nested too deeply, or an alias (*name) contains "
            "itself"
        ) from None
    return Parsed(node, data, builder.marks, builder.problems)


_PLAIN_WORDS = {
    "'\\t'": "a tab in the indentation; use spaces",
    "mapping values are not": "unexpected ':' (wrong indentation, or text that needs quotes?)",
    "expected a single document": "expected one document, but a second one starts ('---')",
    "stream end": "the text ends inside an open bracket or quote",
    "end of stream": "the text ends inside an open bracket or quote",
    "could not find expected ':'": "expected 'key: value' (no ':', or no space after it?)",
}
"""What PyYAML means, by what it says."""


def _plain_words(error: yaml.MarkedYAMLError, source: str) -> str:
    """PyYAML's message for people. ``source``: the line."""
    said = f"{error.context or ''} {error.problem or ''}".strip()
    if "\t" in source[: len(source) - len(source.lstrip())]:
        said = "'\\t'"
    words = (plain for theirs, plain in _PLAIN_WORDS.items() if theirs in said)
    return f"not valid YAML: {next(words, error.problem or said)}"


class Builder:
    """Makes plain data of nodes and remembers where everything stands."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines
        self.marks = Marks()
        self.problems: list[Problem] = []
        self._values = 0

    def mark(self, start: yaml.Mark | None) -> Mark:
        """A place of PyYAML's; without one, the beginning."""
        line, column = (start.line, start.column) if start else (0, 0)
        text = self.lines[line] if line < len(self.lines) else ""
        return Mark(self.file, line + 1, column + 1, text)

    def build(self, node: Node, path: KeyPath) -> Any:
        """The value of a node."""
        self.marks[path] = self.mark(node.start_mark)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise UserError(f"{self.file}: more than {_MOST_VALUES:,} values")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, MappingNode) and kind == "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and kind == "seq":
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and kind in _SCALARS:
            return self._scalar(kind, node, path)
        self._problem(node, path, f"tags such as {node.tag.replace(_TAG, '!!')!r} are not allowed")
        return None

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, path, "expected a plain key, not a list or a mapping")
                continue
            key = str(key_node.value)
            inner = (*path, key)
            if key in result:
                first = self.marks[*inner, KEY].line
                self._problem(key_node, inner, f"duplicate key, first written on line {first}")
                continue
            self.marks[*inner, KEY] = self.mark(key_node.start_mark)
            result[key] = self.build(value_node, inner)
        return result

    def _scalar(self, kind: str, node: ScalarNode, path: KeyPath) -> Any:
        text = str(node.value)
        try:
            return _SCALARS[kind](text)
        except OverflowError:
            self._problem(node, path, f"the number {text[:40]} is too large")
        except (ValueError, KeyError):
            self._problem(node, path, f"{text[:40]!r} does not fit its tag !!{kind}")
        return None

    def _problem(self, node: Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.mark(node.start_mark), dotted(path), message))


def _integer(text: str) -> int:
    if len(text) > 40:
        raise OverflowError(text)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    value = int(text, base)
    if abs(value) > LARGEST_INTEGER:
        raise OverflowError(text)
    return value


def _number(text: str) -> float | int:
    value = float(text)
    if not math.isfinite(value):
        raise OverflowError(text)
    # 1e6 rows is a whole number of rows; 4.0 trainers is left as it is, to be refused.
    if "e" in text.lower() and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _integer,
    "float": _number,
}
"""What makes a value of a scalar's text, by its type."""


def read_text(path: Path, what: str) -> str:
    """The text of a file of ``what``: "an experiment". Raises UserError, one sentence."""
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason, hint = getattr(error, "strerror", None) or error, ""
        if isinstance(error, FileNotFoundError):
            hint = suggest(path.name, (p.name for p in path.parent.glob("*.y*ml")))
        raise UserError(f"{path}: cannot be read as {what}: {reason}{hint}") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path}: larger than {LARGEST_FILE // 2**20} MiB, so not {what}")
    if b"\0" in content:
        raise UserError(
            f"{path}: has zero bytes, as UTF-16 and binary files have; expected {what} in UTF-8"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise UserError(
            f"{path}: not UTF-8 text (byte 0x{byte:02x} on line {line}); expected {what}"
        ) from None
