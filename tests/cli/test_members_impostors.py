"""``haclient members`` on a cluster where an impostor announces a generation that is too high."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import proton
import pytest

from broker_stub.admission.user_file import write_users
from tests.cli.test_members_remarks import asked
from tests.peers import primary
from tests.peers.process import primary_process


def claim(generation: int) -> dict[str, Any]:
    return {"haclient:generation": proton.ulong(generation), "haclient:cluster": "c"}


def of(document: dict[str, Any], port: int) -> dict[str, Any]:
    (found,) = [each for each in document["members"] if each["endpoint"].endswith(f":{port}")]
    return dict(found)


@pytest.mark.parametrize(("generation", "stale"), [(2**63 - 1, False), (2**23 - 1, True)])
async def test_an_impossible_generation_makes_no_member_stale_and_a_possible_one_does(
    generation: int, *, stale: bool
) -> None:
    """Neither peer has proved its identity, so they are equals."""
    async with primary(properties=claim(5)) as real, primary(properties=claim(generation)) as impostor:
        document = await asked(impostor, real)
    assert (of(document, real.port)["kind"] == "stale-primary") is stale


@pytest.mark.slow
async def test_a_member_that_proves_itself_is_primary_whatever_another_announces(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"alice": "right"})
    facts = {"haclient:cluster": "c"}

    def process(mechanism: str, generation: int) -> Any:
        properties = {**facts, "haclient:generation": generation}
        return primary_process(users=tmp_path / "users", mechanisms=[mechanism], properties=properties)

    with process("PLAIN", 2**23 - 1) as impostors, process("SCRAM-SHA-256", 5) as reals:
        (impostor,), (real,) = impostors.peers, reals.peers
        document = await asked(impostor, real, user="alice:right@")
    found = of(document, real.port)
    assert (found["kind"], found["primary"], found["generation"]) == (None, True, 5)
    assert found["mechanism"] == "SCRAM-SHA-256"
