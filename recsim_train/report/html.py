"""A report as one page that needs no network."""

from __future__ import annotations

import re

from recsim_train import __version__
from recsim_train.report.document import Document, Where, visible
from recsim_train.report.drawing import svg_for_page

MOST_HEADLINES = 6


def page(document: Document) -> str:
    """The HTML page. Everything is escaped but our own drawings."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("recsim_train.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = unbroken
    environment.filters["kind"] = lambda item: type(item).__name__
    environment.filters["visible"] = lambda items: visible(items, Where.PAGE)
    environment.filters["svg"] = lambda picture: Markup(svg_for_page(picture))
    template = environment.get_template("page.html.j2", globals={"PAGE": Where.PAGE})
    return template.render(document=document, most=MOST_HEADLINES, version=__version__)


def unbroken(sentence: str) -> str:
    """Keep numbers with their units and signs on one line."""
    kept = re.sub(
        r"(\d) (%|[kMG]?examples/s|ms|s|µs|ns|[KMGT]iB|B)(?!\w)", "\\1\u00a0\\2", sentence
    )
    return kept.replace("± ", "±\u00a0")
