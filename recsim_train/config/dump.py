"""The YAML of a cluster profile, with units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from recsim_train.config.cluster import Cluster
from recsim_train.config.fields import Accepts, accepts, of_field
from recsim_train.config.yaml_source import install_resolvers

DIGITS = 6
"""Significant digits of quantities."""
_WIDTH = 100


class _Dumper(yaml.SafeDumper):
    """Quotes exactly the text that our loader would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Equal parts are written out: an alias helps no reader of a profile."""
        return True


install_resolvers(_Dumper)


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML, in the order given, innermost lists and mappings on one line."""
    return yaml.dump(
        dict(data),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=_WIDTH,
    )


def dump_cluster(cluster: Cluster, header_comment: str = "") -> str:
    """The profile as YAML that `config.load.load_cluster` reads back.

    Quantities keep six significant digits. Each line of ``header_comment`` becomes a comment.
    """
    header = "".join(f"# {line}".rstrip() + "\n" for line in header_comment.splitlines())
    return header + dump_yaml(plain(cluster, digits=DIGITS))


def plain(section: BaseModel, *, digits: int | None) -> dict[str, Any]:
    """A model as the plain data of its YAML: quantities with units, without what is None.

    ``digits``: significant digits of quantities; None: as many as it takes to read back the same.
    """
    result = {}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if value is not None:
            result[name] = _plain(value, of_field(field), digits)
    return result


def _plain(value: Any, what: Accepts, digits: int | None) -> Any:
    if what.quantity is not None:
        if digits is None:
            return what.quantity.format_exact(value)
        return what.quantity.format(value, digits)
    if isinstance(value, BaseModel):
        return plain(value, digits=digits)
    if isinstance(value, dict):
        return {key: _plain(item, accepts(type(item)), digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, accepts(type(item)), digits) for item in value]
    return value
