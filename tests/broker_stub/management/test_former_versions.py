"""Requests and answers of the management node equal version 0.1.0's: either version manages the other.

``answers_of_0_1_0.jsonl`` was recorded from that version; ``...`` replaces values that differ in each run.
Only the lists of queues are no longer in a member's status, which is bounded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.amqp.node_names import MEMBER_TYPE
from broker_stub.management_client import AdminClient, MemberRefusedError
from haclient import Credentials
from tests.broker_stub.clients import member

RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("answers_of_0_1_0.jsonl").read_text().splitlines()
]
PASSWORD = "a password"
UNBOUNDED = {"queues", "queue_count"}
VOLATILE = {"identity", "uptime", "pid", "address", "rate", "stream"}


def lasting(answer: Any) -> Any:
    """Remove values that differ in each run, and the client's own temporary queue."""
    if isinstance(answer, dict):
        lasts = {key: value for key, value in answer.items() if key not in UNBOUNDED}
        return {key: "..." if key in VOLATILE else lasting(value) for key, value in lasts.items()}
    if isinstance(answer, list):
        return [
            lasting(value)
            for value in answer
            if not (isinstance(value, dict) and str(value.get("name")).startswith("temporary/"))
        ]
    return answer


def as_before(answer: Any, expected: Any) -> Any:
    """Remove newer keys and attribute names from an answer."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        if "attributeNames" in expected:
            names = [name for name in answer["attributeNames"] if name in expected["attributeNames"]]
            answer = {**answer, "attributeNames": names}
        return {key: as_before(value, expected[key]) for key, value in answer.items() if key in expected}
    return answer


async def ask(admin: AdminClient, request: dict[str, Any]) -> dict[str, Any]:
    try:
        body = await admin.call(
            request["operation"], kind=request["type"], name=request["name"], **request["arguments"]
        )
    except MemberRefusedError as error:
        return {"status": error.status, "body": None}
    if request["operation"] == "QUERY":
        names = [row[0] for row in body["results"] if not row[0].startswith("temporary/")]
        body = {"attributeNames": body["attributeNames"], "names": names}
    return {"status": 200, "body": lasting(body)}


async def test_every_answer_has_the_keys_and_values_of_before(tmp_path: Path) -> None:
    """The requests have the same order: later ones depend on earlier ones."""
    users = tmp_path / "users"
    write_users(users, {DEFAULT_ADMIN: PASSWORD})
    async with (
        member(tmp_path, "--users", str(users), "--role", "primary") as address,
        await AdminClient.connect(address, Credentials(user=DEFAULT_ADMIN, password=PASSWORD)) as admin,
    ):
        for request in RECORDED:
            body = lasting(request["body"]) if request["type"] == MEMBER_TYPE else request["body"]
            expected = {"status": request["status"], "body": body}
            answer = await ask(admin, request)
            assert as_before(answer, expected) == expected, request["operation"]
