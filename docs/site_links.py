"""A hook of mkdocs: the site holds docs/ alone, so links that leave it become names of files."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"!?\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with such links written out."""
    folder = posixpath.dirname(page.file.src_uri)

    def written(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2].partition("#")[0]))
        return f"{link[1]} (`{path.removeprefix('../')}`)" if path.startswith("../") else link[0]

    return LINK.sub(written, markdown)
