"""The check of named choices with options: strategies, and the parts that they compose."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from recsim_train.config.options import OptionSchema, Schemas, check_option
from recsim_train.config.problems import KeyPath, Mistakes, shown, suggest


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """The sentence for a name that does not exist."""
    hint = suggest(name, known)
    lead = f"unknown {what} {name!r}" + (f"{hint} Known" if hint else "; known")
    return f"{lead}: {', '.join(known)}"


def check_choice(
    what: str, value: object, schemas: Schemas, expected: str, at: KeyPath, mistakes: Mistakes
) -> dict[str, Any] | None:
    """A choice as ``{"kind", "options"}``, from its name or a mapping with ``kind`` and options.

    Options are in the order of their schema, without those that equal their default. ``what`` and
    ``expected`` are for messages. What is wrong goes to the mistakes, and the answer is None.
    """
    kind_path, kind, given = at, value, {}
    if isinstance(value, dict):
        if "kind" not in value:
            mistakes.add(at, f"missing 'kind', the {what}'s name (known: {', '.join(schemas)})")
            return None
        kind_path, kind = (*at, "kind"), value["kind"]
        given = {key: inner for key, inner in value.items() if key != "kind"}
    if not isinstance(kind, str):
        mistakes.add(kind_path, f"expected {expected}, got {shown(kind)}")
        return None
    if kind not in schemas:
        mistakes.add(kind_path, unknown(what, kind, schemas))
        return None
    options = _check_options(f"{what} {kind!r}", schemas[kind], given, at, mistakes)
    return None if options is None else {"kind": kind, "options": options}


def _check_options(
    owner: str,
    schemas: Mapping[str, OptionSchema],
    given: Mapping[str, object],
    at: KeyPath,
    mistakes: Mistakes,
) -> dict[str, Any] | None:
    options: dict[str, Any] = {}
    before = len(mistakes.problems)
    for name, value in given.items():
        option = schemas.get(name)
        if option is None:
            hint = suggest(name, ["kind", *schemas]) or (
                f"; it has: {', '.join(schemas)}" if schemas else "; it has none"
            )
            mistakes.add((*at, name), f"{owner} has no option {name!r}{hint}", at_key=True)
        elif option.type == "part":
            names = ", ".join(map(repr, option.parts))
            part = check_choice(
                name,
                value,
                option.parts,
                f"one of {names}, or a mapping with 'kind' and options",
                (*at, name),
                mistakes,
            )
            if part is not None and part != {"kind": option.default, "options": {}}:
                options[name] = {"kind": part["kind"], **part["options"]}
        else:
            try:
                checked = check_option(option, value)
            except ValueError as error:
                mistakes.add((*at, name), str(error))
                continue
            if checked != option.default:
                options[name] = checked
    sound = len(mistakes.problems) == before
    return {name: options[name] for name in schemas if name in options} if sound else None
