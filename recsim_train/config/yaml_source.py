"""The YAML reader: text to plain data, and where each value stands; and how text is written.

Scalars resolve as in YAML 1.2: ``1e3`` is a number, ``on`` and ``yes`` are text, ``010`` is ten,
dates are text. Underscores may group digits. Duplicate keys, tags and infinities are refused.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from recsim_train.config.errors import UserError
from recsim_train.config.problems import (
    ConfigErrors,
    KeyPath,
    Mark,
    Marks,
    Problem,
    dotted,
    suggest,
)

LARGEST_FILE = 4 * 2**20
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
        return YamlDocument(
            self.file,
            copy.deepcopy(self.data),
            Marks(dict(self.marks.values), dict(self.marks.keys)),
        )


def read_document(path: Path, what: str) -> YamlDocument:
    """Read a YAML file whose top level is a mapping. ``what``: "an experiment".

    Raises UserError (one sentence) if the file cannot be read, ConfigErrors for what it says.
    """
    return parse_document(_read_text(path, what), str(path), what)


def parse_document(text: str, file: str, what: str) -> YamlDocument:
    """As `read_document`, for text that is already there."""
    node = compose(text, file)
    if node is None or (isinstance(node, ScalarNode) and not node.value):
        raise UserError(f"{file}: the file is empty; expected {what} in YAML")
    builder = Builder(file, text.splitlines())
    data = builder.build(node, ())
    if builder.problems:
        raise ConfigErrors(builder.problems, file)
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "a single value"
        message = f"expected {what}: a mapping of keys to values at the top level, not {kind}"
        raise ConfigErrors([Problem(builder.mark(node), "", message)], file)
    return YamlDocument(file, data, builder.marks)


def compose(text: str, where: str) -> Node | None:
    """The node tree of one YAML document; ConfigErrors if it is not valid YAML."""
    lines = text.splitlines()
    try:
        node: Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        # Without a stream, PyYAML's position is the index of the character.
        before = text[: error.position]
        line = before.count("\n") + 1
        column = error.position - (before.rfind("\n") + 1) + 1
        message = f"not valid YAML: control character 0x{error.character:02x}"
        raise ConfigErrors([Problem(Mark(where, line, column), "", message)], where) from None
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        line, column = (at.line + 1, at.column + 1) if at else (1, 1)
        source = lines[line - 1] if line <= len(lines) else ""
        mark, message = Mark(where, line, column, source), _plain_words(error, source, column)
        raise ConfigErrors([Problem(mark, "", message)], where) from None
    except RecursionError:
        raise UserError(f"{where}: not valid here: values are nested too deeply") from None
    return node


def _plain_words(error: yaml.MarkedYAMLError, source: str, column: int) -> str:
    """PyYAML's message for people."""
    problem = str(error.problem or error.context or "cannot be parsed")
    if "'\\t'" in problem or "\t" in source[: len(source) - len(source.lstrip())]:
        return "not valid YAML: a tab in the indentation; use spaces"
    if problem.startswith("mapping values are not allowed"):
        return "not valid YAML: unexpected ':' (wrong indentation, or text that needs quotes?)"
    if "expected a single document" in str(error.context):
        return "not valid YAML here: expected one document, but a second one starts ('---')"
    if "<stream end>" in problem or "end of stream" in problem:
        return "not valid YAML: the text ends inside an open bracket or quote"
    if "could not find expected ':'" in problem:
        return "not valid YAML: expected 'key: value' (is a ':' or the space after it missing?)"
    if "undefined alias" in problem:
        return f"not valid YAML: {problem} (text that starts with '*' needs quotes)"
    return f"not valid YAML: {problem}"


class Builder:
    """Makes plain data of nodes and remembers where everything stands."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines
        self.marks = Marks()
        self.problems: list[Problem] = []
        self._open: set[int] = set()
        self._values = 0

    def mark(self, node: Node) -> Mark:
        """Where a node starts."""
        line, column = node.start_mark.line, node.start_mark.column
        text = self.lines[line] if line < len(self.lines) else ""
        return Mark(self.file, line + 1, column + 1, text)

    def build(self, node: Node, path: KeyPath) -> Any:
        """The value of a node."""
        self.marks.values[path] = self.mark(node)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise UserError(f"{self.file}: more than {_MOST_VALUES:,} values")
        if id(node) in self._open:
            self._problem(node, path, "an alias (*name) that contains itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                self._check_tag(node, path, "seq")
                return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, ScalarNode)
            return self._scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        self._check_tag(node, path, "map")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, path, "expected a plain key, not a list or a mapping")
                continue
            key = str(key_node.value)
            inner = (*path, key)
            if key in result:
                first = self.marks.keys[inner].line
                self._problem(key_node, inner, f"duplicate key, first written on line {first}")
                continue
            self.marks.keys[inner] = self.mark(key_node)
            result[key] = self.build(value_node, inner)
        return result

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(_TAG), str(node.value)
        try:
            if kind in _SCALARS:
                return _SCALARS[kind](text)
        except OverflowError:
            self._problem(node, path, f"the number {text[:40]} is too large")
            return None
        except ValueError:
            self._problem(node, path, f"{text[:40]!r} does not fit its tag !!{kind}")
            return None
        self._check_tag(node, path, "str")
        return None

    def _check_tag(self, node: Node, path: KeyPath, kind: str) -> None:
        if node.tag != _TAG + kind:
            name = node.tag.replace(_TAG, "!!")
            self._problem(node, path, f"tags such as {name!r} are not allowed")

    def _problem(self, node: Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.mark(node), dotted(path), message))


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


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
    "bool": _boolean,
    "int": _integer,
    "float": _number,
}
"""What makes a value of a scalar's text, by its type."""


def _read_text(path: Path, what: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file{_near(path)}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; expected {what} (a YAML file)") from None
    except PermissionError:
        raise UserError(f"{path}: no permission to read the file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from None
    if len(content) > LARGEST_FILE:
        raise UserError(f"{path}: larger than {LARGEST_FILE // 2**20} MiB, so not {what} in YAML")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: UTF-16 text; expected {what} saved as UTF-8")
    if b"\0" in content:
        raise UserError(f"{path}: a binary file; expected {what} in YAML")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise UserError(
            f"{path}: not UTF-8 text (byte 0x{byte:02x} on line {line}); expected {what} in YAML"
        ) from None


def _near(path: Path) -> str:
    """A suggestion among the YAML files that do exist beside an absent one."""
    try:
        hint = suggest(path.name, sorted(p.name for p in path.parent.glob("*.y*ml")))
    except OSError:
        return ""
    if not hint:
        return ""
    close = hint.split("'")[1]
    return f"; did you mean {str(path.parent / close)!r}?"
