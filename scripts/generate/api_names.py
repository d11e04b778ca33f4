"""The tables of names in ``docs/api.md``, for readers on a git host; the site shows the descriptions instead.

A comment ``<!-- api``, with the directives of mkdocstrings, stands above each table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]

_TABLE = re.compile(r"(<!-- api\n(.*?)-->\n).*?(<!-- /api -->\n)", re.DOTALL)
_DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=\.)\s+")


def fill_names(page: str) -> str:
    """Return the page with all its tables of names."""
    package = griffe.load("haclient", search_paths=[ROOT])

    def filled(match: re.Match[str]) -> str:
        rows = [row for name in _DIRECTIVE.findall(match[2]) for row in _rows(package, name)]
        return f"{match[1]}\n| name | description |\n|---|---|\n{''.join(rows)}\n{match[3]}"

    return _TABLE.sub(filled, page)


def _rows(package: griffe.Object | griffe.Alias, name: str) -> Iterator[str]:
    found = package[name.removeprefix("haclient.")]
    if found.is_module:
        names = found.exports or [each.name for each in found.members.values() if _is_class(each)]
        described = {str(each): found[each] for each in names}
    else:
        members = found.all_members.items()
        public = {f"{found.name}.{each}": member for each, member in members if not each.startswith("_")}
        described = {found.name: found, **public}
    for each, named in described.items():
        if named.docstring:
            yield f"| `{each}` | {_first_sentence(named.docstring.value)} |\n"


def _is_class(member: griffe.Object | griffe.Alias) -> bool:
    return not member.is_alias and member.is_class


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph, maxsplit=1)[0].replace("``", "`").replace("|", r"\|")
