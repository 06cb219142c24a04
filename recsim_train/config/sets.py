"""``--set key=value``: changes to an experiment's plain data before it is checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from recsim_train.config.options import OptionSchema, Schemas
from recsim_train.config.problems import (
    ConfigErrors,
    KeyPath,
    Mark,
    Mistakes,
    Problem,
    dotted,
    suggest,
)
from recsim_train.config.yaml_source import Builder, YamlDocument, compose


def parse_value(text: str, where: str) -> Any:
    """The value of one argument: a YAML scalar, or a flow list or mapping.

    Text that would be YAML syntax but opens no bracket or quote (``@x``, ``a: b``, ``a #b``) is
    taken as it stands. Raises ConfigErrors for a list, mapping or quote that is not closed.
    """
    text = text.strip()
    quoted = text.startswith(("[", "{", '"', "'"))
    try:
        node = compose(text, where)
    except ConfigErrors as error:
        if not quoted:
            return text
        raise ConfigErrors([Problem(Mark(where), "", error.problems[0].message)], where) from None
    if node is None:
        return text or None
    if not quoted and not _whole(node, text):
        return text
    builder = Builder(where, [])
    value = builder.build(node, ())
    if builder.problems:
        raise ConfigErrors(
            [Problem(Mark(where), p.key, p.message) for p in builder.problems], where
        )
    return value


def _whole(node: Node, text: str) -> bool:
    """Whether a scalar is all of the text: no comment cut off, no block mapping opened."""
    if isinstance(node, MappingNode | SequenceNode):
        return False
    assert isinstance(node, ScalarNode)
    return bool(node.tag.startswith("tag:yaml.org")) and node.end_mark.index == len(text)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One setting and its value, which was written at ``mark``."""

    key: str
    """Dotted."""
    value: Any
    mark: Mark

    @property
    def path(self) -> KeyPath:
        """The key's parts."""
        return tuple(part.strip() for part in self.key.split("."))

    @property
    def typed(self) -> bool:
        """Whether it was given on the command line."""
        return self.mark.line == 0


def parse_sets(arguments: Sequence[str | Assignment], mistakes: Mistakes) -> list[Assignment]:
    """The arguments with their values read; those that cannot be go to the mistakes."""
    assignments = []
    for argument in arguments:
        if isinstance(argument, Assignment):
            assignments.append(argument)
            continue
        mark = Mark(f"--set {argument}")
        key, equals, text = argument.partition("=")
        if not equals or not all(part.strip() for part in key.strip().split(".")):
            mistakes.problems.append(
                Problem(mark, "", "expected key=value, such as roles.trainers=4")
            )
            continue
        if not text.strip():  # as of a variable that is not set
            mistakes.problems.append(
                Problem(
                    mark, "", f"expected a value, got empty text; to have none: {key.strip()}=null"
                )
            )
            continue
        try:
            assignments.append(Assignment(key.strip(), parse_value(text, mark.where), mark))
        except ConfigErrors as error:
            mistakes.problems += error.problems
    return assignments


@dataclass(frozen=True, slots=True)
class Sets:
    """Applies arguments, in order, to a document."""

    document: YamlDocument
    schemas: Schemas
    mistakes: Mistakes

    def apply(self, arguments: Sequence[str | Assignment]) -> None:
        """Change the document; what is wrong with an argument goes to the mistakes."""
        path_mark: Mark | None = None
        assignments = parse_sets(arguments, self.mistakes)
        for item in assignments:
            if item.path == ("data", "path") and item.typed:
                path_mark = item.mark
            self._assign(item.path, item.value, item.mark)
        if path_mark is not None and ("data", "generate") not in {i.path for i in assignments}:
            # Only the experiment's own file may be made; one that is named here must exist.
            data = self.document.data.get("data")
            if isinstance(data, dict):
                data["generate"] = False
                self.document.marks.replace(("data", "generate"), path_mark)

    def _assign(self, path: KeyPath, value: Any, mark: Mark) -> None:
        data = self.document.data
        if len(path) > 1 and path[0] == "model" and isinstance(data.get("model"), str):
            self.document.marks.values["model", "preset"] = self.document.marks.locate(("model",))
            data["model"] = {"preset": data["model"]}
        if len(path) > 1 and path[0] == "strategy":
            self._assign_strategy(path, value, mark)
        else:
            self._write(path, value, mark)

    def _assign_strategy(self, path: KeyPath, value: Any, mark: Mark) -> None:
        current = self.document.data.get("strategy")
        if not isinstance(current, list) or str(path[1]).isdigit():
            self._write_option(path, value, mark)
            return
        option = ".".join(map(str, path[1:]))
        if option == "kind":
            self.mistakes.add_at(
                mark, "strategy.kind", "strategy is a list here: write strategy=NAME"
            )
            return
        options = [option_names(entry, self.schemas) for entry in current]
        fitting = [index for index, names in enumerate(options) if option in names]
        if not fitting:
            hint = suggest(option, dict.fromkeys(itertools.chain(*options)))
            self.mistakes.add_at(
                mark,
                f"strategy.{option}",
                f"no strategy of the list has an option {option!r}{hint}",
            )
        for index in fitting:
            self._write_option(("strategy", index, *path[1:]), value, mark)

    def _write_option(self, path: KeyPath, value: Any, mark: Mark) -> None:
        """Set an option, turning plain names on the way there (the strategy's, a part's) into
        mappings that hold them."""
        at: Any = self.document.data
        marks = self.document.marks
        done: KeyPath = ()
        for part in path[:-1]:
            key: Any = int(part) if isinstance(at, list) and str(part).isdigit() else part
            held = dict(enumerate(at)) if isinstance(at, list) else at
            inner = held.get(key) if isinstance(held, dict) else None
            done = (*done, key)
            if isinstance(inner, str):
                marks.values[*done, "kind"] = marks.locate(done)
                inner = at[key] = {"kind": inner}
            at = inner
        self._write(path, value, mark)

    def _write(self, path: KeyPath, value: Any, mark: Mark) -> None:
        """Set one place, making the mappings on the way there."""
        at: Any = self.document.data
        marks = self.document.marks
        done: KeyPath = ()
        for depth, part in enumerate(path):
            last = depth == len(path) - 1
            if isinstance(at, list):
                if not (isinstance(part, int) or part.isdigit()) or int(part) >= len(at):
                    self.mistakes.add_at(
                        mark,
                        dotted(done),
                        f"{dotted(done)} is a list of {len(at)}: expected a position in it",
                    )
                    return
                part = int(part)  # noqa: PLW2901 - the key of a list is its position
            elif not isinstance(at, dict):
                self.mistakes.add_at(
                    mark, dotted(done), f"{dotted(done)} is a single value and has no {str(part)!r}"
                )
                return
            done = (*done, part)
            if last:
                at[part] = value
                marks.replace(done, mark)
            else:
                if isinstance(at, dict) and at.get(str(part)) is None:
                    at[part] = {}
                    marks.replace(done, mark)
                at = at[part]


def option_names(entry: object, schemas: Schemas) -> list[str]:
    """The dotted options of a strategy (its name, or a mapping), those of its parts included."""
    kind = entry.get("kind") if isinstance(entry, dict) else entry
    return list(_dotted(schemas.get(kind, {}), entry)) if isinstance(kind, str) else []


def _dotted(options: Mapping[str, OptionSchema], entry: object) -> Iterator[str]:
    """Names of options, and of those of the parts that ``entry`` chooses."""
    for name, option in options.items():
        yield name
        if not option.parts:
            continue
        yield f"{name}.kind"
        chosen = entry.get(name) if isinstance(entry, dict) else None
        kind = chosen.get("kind") if isinstance(chosen, dict) else chosen
        if isinstance(kind, str):
            yield from (f"{name}.{key}" for key in _dotted(option.parts.get(kind, {}), chosen))
