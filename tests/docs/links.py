"""A hook of the site (mkdocs.yml): a link to a file outside docs/ becomes its text.

On the page in the repository such a link leads to the file; the site does not hold it.
"""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text without links that lead out of docs/."""
    return without_outside(markdown, page.file.src_uri.count("/"))


def without_outside(markdown: str, folders: int) -> str:
    """The text of a page that lies ``folders`` folders below docs/."""
    return re.sub(rf"\[([^\]]+)\]\((?:\.\./){{{folders + 1},}}[^)]*\)", r"\1", markdown)
