"""``--set key=value``: changes to plain data before it is checked, and those of what settings are
otherwise, such as ``cluster.hosts.*.nic=x1.25``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel
from yaml.nodes import ScalarNode

from recsim_train.config.options import Schemas, parts_of
from recsim_train.config.problems import (
    ConfigErrors,
    KeyPath,
    Mark,
    Mistakes,
    dotted,
    suggest,
)
from recsim_train.config.units import EVERY
from recsim_train.config.validate import of_path
from recsim_train.config.yaml_source import YamlDocument, parse_yaml


def parse_value(text: str, where: str) -> Any:
    """The value of one argument: a YAML scalar, or a flow list or mapping.

    Text that would be YAML syntax but opens no bracket or quote (``@x``, ``a: b``, ``a #b``) is
    taken as it stands. Raises ConfigErrors for a list, mapping or quote that is not closed.
    """
    text = text.strip()
    quoted = text.startswith(("[", "{", '"', "'"))
    try:
        node, value, _, problems = parse_yaml(text, where)
    except ConfigErrors as error:
        if not quoted:
            return text
        node, value, problems = None, None, error.problems
    # unless it is all of the text, a comment was cut off, or a block mapping opened
    plain = isinstance(node, ScalarNode) and node.tag.startswith("tag:yaml.org")
    if not quoted and not (plain and node is not None and node.end_mark.index == len(text)):
        return text or None
    if problems:
        raise ConfigErrors([replace(p, mark=Mark(where)) for p in problems], where)
    return value


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
            mistakes.add_at(mark, "", "expected key=value, such as roles.trainers=4")
            continue
        if not text.strip():  # as of a variable that is not set
            mistakes.add_at(
                mark, "", f"expected a value, got empty text; to have none: {key.strip()}=null"
            )
            continue
        try:
            assignments.append(Assignment(key.strip(), parse_value(text, mark.where), mark))
        except ConfigErrors as error:
            mistakes.problems += error.problems
    return assignments


@dataclass(frozen=True, slots=True)
class Sets:
    """Applies assignments, in order, to a document."""

    document: YamlDocument
    schemas: Schemas
    mistakes: Mistakes

    def apply(self, assignments: Sequence[Assignment]) -> None:
        """Change the document; what is wrong with an assignment goes to the mistakes."""
        for item in assignments:
            of_strategy = len(item.path) > 1 and item.path[0] == "strategy"
            (self._write_option if of_strategy else self._write)(item.path, item.value, item.mark)
        named = [i.mark for i in assignments if i.path == ("data", "path") and i.typed]
        if named and ("data", "generate") not in {i.path for i in assignments}:
            # Only the experiment's own file may be made; one that is named here must exist.
            data = self.document.data.get("data")
            if isinstance(data, dict):
                data["generate"] = False
                self.document.marks.replace(("data", "generate"), named[-1])

    def _write_option(self, path: KeyPath, value: Any, mark: Mark) -> None:
        """Set an option of all strategies that have it, or of the one that the path names."""
        current = self.document.data.get("strategy")
        if not isinstance(current, list) or str(path[1]).isdigit():
            self._write(path, value, mark)
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
            self._write(("strategy", index, *path[1:]), value, mark)

    def _write(self, path: KeyPath, value: Any, mark: Mark) -> None:
        """Set one place, making the mappings on the way there; names there that stand alone (the
        model's preset, a strategy's, a part's) become mappings that hold them."""
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
                elif isinstance(name := at[part], str) and (key := _named_by(done)):
                    marks[*done, key] = marks.locate(done)
                    at[part] = {key: name}
                at = at[part]


def _named_by(path: KeyPath) -> str | None:
    """The key of the name that may stand alone at a place; None: none may."""
    return "kind" if path[0] == "strategy" else "preset" if path == ("model",) else None


def option_names(entry: object, schemas: Schemas) -> list[str]:
    """The dotted options of a strategy (its name, or a mapping), those of its parts included."""
    given: dict[str, Any] = entry if isinstance(entry, dict) else {"kind": entry}
    section = schemas.get(str(given.get("kind")))
    names: list[str] = []
    for name, field in section.model_fields.items() if section else ():
        names.append(name)
        if parts := parts_of(field):
            inner = ["kind", *option_names(given.get(name), parts)]
            names += [f"{name}.{key}" for key in inner]
    return names


_TIMES = re.compile(r"x(\d+(?:\.\d+)?)")


M = TypeVar("M", bound=BaseModel)


def read_with(
    sets: Sets, given: Sequence[str | Assignment], model: type[M], read: Callable[[], M]
) -> M:
    """What ``read`` makes of a document of this model once the overrides are in it, of which those
    that say how many times follow the others."""
    items = parse_sets(given, sets.mistakes)
    relative = [item for item in items if _is_relative(item, model)]
    sets.apply([item for item in items if item not in relative])
    settings = read()
    if relative:
        sets.apply(_absolute(relative, settings, sets.document, sets.mistakes))
        settings = read()
    return settings


def _is_relative(item: Assignment, model: type[BaseModel]) -> bool:
    """Whether it multiplies a number, or is of each entry of a mapping or list."""
    if EVERY in item.path:
        return True
    what = of_path(model, item.path) if _times(item.value) is not None else None
    return what is not None and (what.quantity is not None or what.hint in (int, float))


def _times(value: Any) -> float | None:
    found = _TIMES.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1])


def _absolute(
    items: Sequence[Assignment], settings: BaseModel, document: YamlDocument, mistakes: Mistakes
) -> list[Assignment]:
    """The same overrides with the keys and values that they come to; of what is not given none.
    Those that name nothing that is go to the mistakes. ``document``: what ``settings`` are read
    from, whose lists have entries of their own."""
    found = []
    for item in items:
        times, places = _times(item.value), list(_places(settings, document.data, item.path))
        for path, known in places:
            value = item.value
            if times is not None:
                what = of_path(type(settings), path)
                value = times * known
                if what is not None and what.quantity is not None:
                    value = what.quantity.format_exact(value)
                elif isinstance(known, int) and value.is_integer():
                    value = int(value)
            found.append(Assignment(".".join(map(str, path)), value, item.mark))
        if not places:
            mistakes.add_at(item.mark, item.key, "expected the name of settings that have a value")
    return found


def _places(
    at: Any, written: Any, path: KeyPath, above: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any]]:
    """Where settings are that a key names, and what they are."""
    if not path:
        if at is not None:
            yield above, at
        return
    part, rest = path[0], path[1:]
    entries: dict[Any, Any] = at if isinstance(at, dict) else {}
    if isinstance(at, BaseModel):
        entries = dict(at)
    elif isinstance(at, tuple) and isinstance(written, list) and len(written) == len(at):
        entries = dict(enumerate(at))
        part = int(part) if str(part).isdigit() else part
    known = dict(enumerate(written)) if isinstance(written, list) else written
    for key in entries if part == EVERY else [part]:
        if key in entries:
            inner = known.get(key) if isinstance(known, dict) else None
            yield from _places(entries[key], inner, rest, (*above, key))
