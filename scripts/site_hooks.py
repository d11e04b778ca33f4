"""Hooks that adapt the pages to the documentation site: ``mkdocs.yml`` names this module.

* A link whose text is the name of a file gets the title of that page.
* A link to a file outside of ``docs/`` (an example, a module) becomes the path of that file: the site has no
  such page.
* The first page hides its list of pages, which would have one line.  A page without sections has no
  table of contents.
* State diagrams become tables.  A page of the repository shows the same source as a drawing, which
  in the site would need a script from another host.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^):#\s]+)((?:#[^)\s]*)?)\)")
_FILE_NAME = re.compile(r"(?:\.\./)?[\w/-]+\.md")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_ARROW = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
_END = "[*]"


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: object) -> str:
    """Adapt the text of a page; MkDocs calls it for each page."""
    page.meta["hide"] = ["navigation"] if page.is_homepage else [] if "\n## " in markdown else ["toc"]
    titles = {each.src_uri: _title(each.content_string) for each in files.documentation_pages()}
    return with_titles_and_paths(markdown, page.file.src_uri, titles)


def _title(text: str) -> str | None:
    found = _TITLE.search(text)
    return found and found[1]


def with_titles_and_paths(markdown: str, page: str, titles: Mapping[str, str | None]) -> str:
    """Return the text of a page with links that suit the site.

    :param page: its path in the folder of all pages.
    :param titles: the titles of all pages, by path.
    """

    def replaced(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if path.startswith("../"):
            outside = path.removeprefix("../")
            return text if outside in text else f"{text} (`{outside}`)"
        title = titles.get(path)
        if title and _FILE_NAME.fullmatch(text):
            return f"[{title}]({target}{anchor})"
        return match[0]

    return _LINK.sub(replaced, markdown)


def moves_table(source: str, *_: object, **__: object) -> str:
    """Format a Mermaid state diagram as an HTML table: the custom fence of ``mkdocs.yml``."""
    head = "<table><tr><th>state</th><th>move</th><th>next state</th></tr>"
    return f"{head}{''.join(_rows(source))}</table>"


def _rows(source: str) -> Iterator[str]:
    for state, to, moves in _ARROW.findall(source):
        if state == _END:
            yield _row("", "begins", to)
        elif to == _END:
            yield _row(state, "is final", "")
        else:
            yield _row(state, moves, to)


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
