"""``docs/errors.md`` has every short name, and quotes texts of the code."""

from __future__ import annotations

import ast
import re

from haclient.discovery.evidence import FailureReason
from haclient.error_catalog.entries import ENTRIES
from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "errors.md").read_text()


def rows(name: str) -> list[tuple[str, str]]:
    """Return the first two cells of each row between two markers."""
    table = PAGE.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
    return re.findall(r"^\| `(.+?)` \| (.+?) \| .*\|$", table, re.MULTILINE)


TEXTS, LINES = rows("texts"), rows("lines")


def literals() -> str:
    """Return the client's texts, one a line, with an ellipsis for each formatted value."""
    found = []
    for path in (ROOT / "haclient").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Constant(value=str(text)):
                    found.append(re.sub(r"%[-\w.]+", "…", text))
                case ast.JoinedStr(values=values):
                    parts = (each.value if isinstance(each, ast.Constant) else "…" for each in values)
                    found.append("".join(map(str, parts)))
    # core/attach/refusals.py formats one of two words into its text
    found += (f"the primary {verb} the link to" for verb in ("refused", "detached"))
    return "\n".join(found)


def test_every_short_name_has_a_text_or_is_the_text_and_leads_to_its_entry() -> None:
    linked = {code for _, name in TEXTS for code in re.findall(r"^\[`([\w-]+)`\]\(#\1\)$", name)}
    shown = {reason.value for reason in FailureReason}
    assert linked - set(ENTRIES) == set()
    assert set(ENTRIES) - linked - shown == set()
    assert set(re.findall(r"^### (.+)$", PAGE, re.MULTILINE)) == set(ENTRIES)


def test_every_text_is_one_of_the_client() -> None:
    known = literals()
    reasons = {reason.value for reason in FailureReason}
    unknown = [
        text
        for text, _ in [*TEXTS, *LINES]
        if text not in reasons and not all(part.strip() in known for part in text.split("…"))
    ]
    assert unknown == []
    assert len(TEXTS) > 50
    assert len(LINES) > 8
