"""The programs of the how-to pages run, one after another, as a reader would type them.

A program below the comment ``<!-- not run: REASON -->`` is for a package that is not installed here: it is
compiled only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from haclient.testing import Broker
from tests.docs.pages import DOCS

GUIDES = ("amazon-mq.md", "migrating.md", "platforms.md", "producing.md", "production.md", "security.md")
_PROGRAM = re.compile(r"^(<!-- not run: .+ -->\n\n?)?```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The hosts of the pages, for which a test puts those of its own broker.
_URL = re.compile(r"amqps?://(?:[\w:%-]+@)?(?:broker-a,broker-b|artemis-a,artemis-b)")


@pytest.mark.parametrize("name", GUIDES)
def test_its_programs_run(
    name: str, haclient_module_broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    haclient_module_broker.restore()
    monkeypatch.setenv("HACLIENT_URL", haclient_module_broker.url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    programs = _PROGRAM.findall((DOCS / name).read_text())
    assert programs
    for not_run, program in programs:
        code = compile(_URL.sub(haclient_module_broker.url, program), name, "exec")
        if not not_run:
            exec(code, names)  # noqa: S102
