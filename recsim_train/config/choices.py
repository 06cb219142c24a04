"""The check of a named choice's options: a strategy's, and those of the parts that it composes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recsim_train.config.options import OptionSchema, check_option
from recsim_train.config.problems import Findings, KeyPath, shown, suggest


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that does not exist."""
    names = list(known)
    hint = suggest(name, names)
    lead = f"unknown {what} {name!r}{hint}"
    return f"{lead} Known: {', '.join(names)}" if hint else f"{lead}; known: {', '.join(names)}"


def check_choice(
    owner: str,
    known: Mapping[str, OptionSchema],
    given: Mapping[str, object],
    at: KeyPath,
    findings: Findings,
) -> dict[str, Any] | None:
    """The given options in the order of ``known``, without those that equal their default.

    ``owner``: whose options they are, such as "strategy 'flat_ps'". What is wrong goes to the
    findings, and the answer is None.
    """
    options: dict[str, Any] = {}
    sound = True
    for name, value in given.items():
        option = known.get(name)
        if option is None:
            hint = suggest(name, ["kind", *known])
            hint = hint or (f"; it has: {', '.join(known)}" if known else "; it has none")
            message = f"{owner} has no option {name!r}{hint}"
            findings.add((*at, name), message, at_key=True)
            sound = False
            continue
        if option.type == "part":
            part = _check_part(option, value, (*at, name), findings)
            sound = sound and part is not None
            if part is not None and part != {"kind": option.default}:
                options[name] = part
            continue
        try:
            checked = check_option(option, value)
        except ValueError as error:
            findings.add((*at, name), str(error))
            sound = False
            continue
        if checked != option.default:
            options[name] = checked
    return {name: options[name] for name in known if name in options} if sound else None


def _check_part(
    option: OptionSchema, value: object, at: KeyPath, findings: Findings
) -> dict[str, Any] | None:
    """A part as ``{"kind", its options}``, from its name or a mapping."""
    kind_path, given = at, {}
    kind: object = value
    if isinstance(value, dict):
        if "kind" not in value:
            names = ", ".join(option.parts)
            findings.add(at, f"missing 'kind', the {option.name}'s name (known: {names})")
            return None
        kind_path, kind = (*at, "kind"), value["kind"]
        given = {key: inner for key, inner in value.items() if key != "kind"}
    if not isinstance(kind, str):
        names = ", ".join(map(repr, option.parts))
        expected = f"one of {names}, or a mapping with 'kind' and options"
        findings.add(kind_path, f"expected {expected}, got {shown(kind)}")
        return None
    if kind not in option.parts:
        findings.add(kind_path, unknown(option.name, kind, option.parts))
        return None
    options = check_choice(f"{option.name} {kind!r}", option.parts[kind], given, at, findings)
    return None if options is None else {"kind": kind, **options}
