"""The tests run every command of the page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pacemaker.page import PAGE, blocks

_TOOLS = re.compile(r"^ +(pcs|crm|crm_mon|install -d) ", re.MULTILINE)


def test_every_block_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    tests = tests.replace("{tool}", "pcs") + tests.replace("{tool}", "crmsh")
    assert blocks()
    assert [name for name in blocks() if f'"{name}"' not in tests] == []


def test_every_command_of_the_page_is_in_a_block() -> None:
    page = PAGE.read_text()
    run = "".join(blocks().values())
    assert len(_TOOLS.findall(page)) == len(re.findall(_TOOLS.pattern.replace("^ +", "^"), run, re.MULTILINE))
