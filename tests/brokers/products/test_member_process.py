"""A member's process leaves no files in the folder where the tests were started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.brokers.products.member_process import MemberProcess

pytestmark = pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")


async def test_what_a_member_writes_into_its_working_folder_is_beside_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout, member = tmp_path / "checkout", tmp_path / "member"
    checkout.mkdir()
    member.mkdir()
    monkeypatch.chdir(checkout)
    process = MemberProcess("member", ("sh", "-c", "echo >derby.log; exec sleep 600"), member / "log")
    process.start()
    while process.running and not (member / "derby.log").exists() and not list(checkout.iterdir()):
        pass
    await process.kill()
    assert [each.name for each in sorted(member.iterdir())] == ["derby.log", "log"]
    assert list(checkout.iterdir()) == []
