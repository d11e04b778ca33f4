"""Every link between the pages has a target, and every page is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        ROOT / "changes" / "README.md",
        ROOT / "examples" / "README.md",
        *DOCS.rglob("*.md"),
    ]
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: from its headings, as on the web, and explicit ones."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    broken = []
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", (DOCS / "README.md").read_text())
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} - set(linked) == set()


def test_the_index_and_the_recipes_are_one_click_from_the_readme() -> None:
    linked = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    assert {"docs/README.md", "docs/recipes.md", "docs/usage.md"} <= set(linked)
