"""The meaning of alarms; the jobs of ``test_by_hand`` and ``test_flapping`` raise them."""

from __future__ import annotations

import re
from pathlib import Path

from haclient.analysis.alarms import KINDS, Severity

PAGE = Path(__file__).parents[2] / "docs" / "analysis.md"


def test_the_page_has_every_kind_with_its_severity_in_the_order_of_urgency() -> None:
    section = PAGE.read_text().split("\n## alarms\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (critical|warning|notice) \|", section, flags=re.MULTILINE)
    assert rows == [(kind, known.severity.value) for kind, known in KINDS.items()]
    order = [list(Severity).index(known.severity) for known in KINDS.values()]
    assert order == sorted(order)


def test_each_kind_says_what_it_means_and_what_to_do_in_sentences() -> None:
    for known in KINDS.values():
        for text in (known.meaning, known.action):
            assert re.fullmatch(r"[A-Z].*\.", text)
