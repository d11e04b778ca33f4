"""Hooks that adapt the pages to the documentation site: ``mkdocs.yml`` names this module.

* A link whose text is the name of a file gets the title of that page.
* A link to a file outside of ``docs/`` (an example, a module) becomes the path of that file: the site has no
  such page.
* The first page hides its list of pages, which would have one line.  A page without sections has no
  table of contents.
* State diagrams become tables.  A page of the repository shows the same source as a drawing, which
  in the site would need a script from another host.
* Each cell of a table with three columns or more gets a label, for ``site.css``: on a phone it shows the rows
  of tables as lists.
* In ``api.md`` the descriptions of names replace the tables of names that a git host shows.
"""

from __future__ import annotations

import html
import itertools
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(([^):#\s]+)((?:#[^)\s]*)?)\)")
_FILE_NAME = re.compile(r"(?:\.\./)?[\w/-]+\.md")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_ARROW = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
_END = "[*]"
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADER = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_API = re.compile(r"<!-- api\n(.*?)-->\n.*?<!-- /api -->\n", re.DOTALL)


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: object) -> str:
    """Adapt the text of a page; MkDocs calls it for each page."""
    page.meta["hide"] = ["navigation"] if page.is_homepage else [] if "\n## " in markdown else ["toc"]
    titles = {each.src_uri: _title(each.content_string) for each in files.documentation_pages()}
    return with_descriptions(with_titles_and_paths(markdown, page.file.src_uri, titles))


def on_page_content(content: str, **_: object) -> str:
    """Adapt the HTML of a page; MkDocs calls it for each page."""
    return with_labels(content)


def with_descriptions(markdown: str) -> str:
    """Replace each table of names by the directives of mkdocstrings in the comment above it."""
    return _API.sub(r"\1", markdown)


def with_labels(content: str) -> str:
    """Return HTML in which each cell of a wide table carries the header of its column."""
    return _TABLE.sub(lambda table: _with_labels(table[0]), content)


def _with_labels(table: str) -> str:
    labels = [_TAG.sub("", header).strip(" ?").replace('"', "&quot;") for header in _HEADER.findall(table)]
    if len(labels) < 3:  # noqa: PLR2004 - the first cell is a term, the second explains it
        return table
    labels[0] = ""  # the first cell is the heading of its row
    column = itertools.cycle(labels)  # Markdown fills short rows

    def labelled(_: re.Match[str]) -> str:
        label = next(column)
        return f'<td data-label="{label}"' if label else "<td"

    return re.sub(r"<td\b", labelled, table)


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
    head = "<table><thead><tr><th>state</th><th>move</th><th>next state</th></tr></thead>"
    return f"{head}<tbody>{''.join(_rows(source))}</tbody></table>"


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
