"""The runner of qpid-interop-test's shims finds a value that a client changes, and the culprit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.interop.qit import checkout, page, tap
from tests.interop.qit.brokers import Broker
from tests.interop.qit.checkout import Shim
from tests.interop.qit.results import BROKER, CaseResult, ItemResult, read
from tests.interop.qit.runner import Runner
from tests.members import Member

# A checkout with the fewest values that the runner needs.
_VALUES = """
class Types:
    INT = {"type": "int", "values": [-1, 0, 0x7FFFFFFF]}
    TEXT = {"type": "string", "values": ["", "a" * 300, "three"]}
    FLOAT = {"type": "float", "values": [0x80000000]}
"""
_JMS = {
    "TEXT_MESSAGE_VALUES": ["one"],
    "BYTES_MESSAGE_VALUES": ["00ff"],
    "MAP_MESSAGE_VALUES": ["two"],
    "STREAM_MESSAGE_VALUES": ["two"],
    "JMS_HEADERS_CORRELATION_ID_STRING": ["c-1"],
    "JMS_HEADERS_CORRELATION_ID_BYTES": ["00ff"],
    "JMS_HEADERS_REPLY_TO_QUEUE": ["reply"],
    "JMS_HEADERS_REPLY_TO_TOPIC": ["reply"],
    "JMS_HEADERS_JMS_TYPE": ["order"],
    **{
        f"JMS_PROPS_{kind}": {kind.lower(): {"type": "string", "value": "x"}}
        for kind in ("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING")
    },
}
# Variants of haclient's shim with one fault; their first argument is haclient's program.
_RECEIVES_ANOTHER = """
import subprocess, sys
said = subprocess.run(sys.argv[1:], capture_output=True, check=True, text=True).stdout
print(said.replace("three", "four"))
"""
_SENDS_ANOTHER = """
import os, sys
os.execv(sys.argv[1], [each.replace("three", "four") for each in sys.argv[1:]])
"""
_FAILS = """
import os, sys
if "three" in str(sys.argv):
    sys.exit("Error: no three")
os.execv(sys.argv[1], sys.argv[1:])
"""

_FORGETS_WHAT_IS_NOT_DURABLE = """
import json, subprocess, sys
said = json.loads(subprocess.run(sys.argv[1:], capture_output=True, check=True, text=True).stdout)
if "messages" in said:
    said["messages"] = [each for each in said["messages"] if each["message_header"]["durable"]]
print(json.dumps(said))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A minimal checkout."""
    for path, text in {
        "src/qit/types/primitives.py": _VALUES,
        "src/qit/types/composites.py": "",
        "tests/test_jms_unified.py": "\n".join(f"{name} = {value!r}" for name, value in _JMS.items()),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def shim(source: Path, key: str, program: str = "") -> Shim:
    """Return the shim of ``haclient``, or a variant of it made by this program."""
    (ours,) = (each for each in checkout.shims(source) if each.key == "haclient")
    if not program:
        return ours
    folder = source / "shims" / key
    folder.mkdir(parents=True)
    (folder / "shim.py").write_text(program)
    (folder / "shim.sh").write_text(
        f'#!/bin/sh\nexec {sys.executable} {folder}/shim.py {ours.program} "$@"\n'
    )
    (folder / "shim.sh").chmod(0o755)
    (folder / "shim.json").write_text(json.dumps({"name": key, "type": "amqp"}))
    (found,) = (each for each in checkout.shims(source) if each.key == key)
    return found


async def failures(
    member: Member,
    source: Path,
    sender: Shim,
    receiver: Shim,
    suites: tuple[str, ...] = ("types",),
    *,
    durable: bool = False,
) -> list[ItemResult]:
    """Return the failures between these two, of one text among other values that must be right."""
    runner = Runner(Broker("member", "", member.url, str), source, sender, (receiver,), durable=durable)
    items = [item async for result in runner.results(suites) for item in result.items]
    assert len(items) > 1
    return [item for item in items if item.problem]


async def test_every_value_arrives_between_our_shims(broker: Member, source: Path) -> None:
    ours = shim(source, "haclient")
    suites = ("types", "header", "jms", "jms-headers")
    assert await failures(broker, source, ours, ours, suites) == []


async def test_every_message_is_durable_where_the_broker_loses_others(broker: Member, source: Path) -> None:
    other = shim(source, "other", _FORGETS_WHAT_IS_NOT_DURABLE)
    ours = shim(source, "haclient")
    assert len(await failures(broker, source, ours, other)) > 1
    suites = ("types", "header", "jms", "jms-headers")
    assert await failures(broker, source, ours, other, suites, durable=True) == []


async def test_a_receiver_that_changes_a_value_is_at_fault(broker: Member, source: Path) -> None:
    other = shim(source, "other", _RECEIVES_ANOTHER)
    (failure,) = await failures(broker, source, shim(source, "haclient"), other)
    assert failure.fault == "other"
    assert failure.problem == 'string "three" arrived as string "four"'
    # The amqp-value section, and a string of five bytes.
    assert bytes.fromhex(failure.wire) == b"\x00\x53\x77\xa1\x05three"


async def test_a_sender_that_changes_a_value_is_at_fault(broker: Member, source: Path) -> None:
    other = shim(source, "other", _SENDS_ANOTHER)
    (failure,) = await failures(broker, source, other, shim(source, "haclient"))
    assert failure.fault == "other"
    assert bytes.fromhex(failure.wire) == b"\x00\x53\x77\xa1\x04four"


async def test_a_sender_that_fails_at_one_value_sends_the_others(broker: Member, source: Path) -> None:
    other = shim(source, "other", _FAILS)
    (failure,) = await failures(broker, source, other, shim(source, "haclient"))
    assert (failure.fault, failure.problem) == (
        "other",
        "other does not send it: Error: no three (exit code 1)",
    )


async def test_a_broker_that_changes_a_value_is_at_fault(
    broker: Member, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge receives the same as the receiver, but reads another value from the sender."""
    stored = tap.stored

    async def changed(address: str, queue: str, count: int) -> list[bytes]:
        return [data.replace(b"\x05three", b"\x04four") for data in await stored(address, queue, count)]

    monkeypatch.setattr(tap, "stored", changed)
    other = shim(source, "other", _RECEIVES_ANOTHER)
    (failure,) = await failures(broker, source, shim(source, "haclient"), other)
    assert failure.fault == BROKER


def test_the_page_counts_failures_by_who_is_at_fault(tmp_path: Path) -> None:
    items = [
        ItemResult("int 1"),
        ItemResult("int 2", "int 2 arrived as int 3", "javascript-rhea", "0053775403"),
    ]
    results = [
        CaseResult("pair", "1", "calm", "haclient", "javascript-rhea", "types", "int", items),
        CaseResult(
            "pair", "1", "calm", "haclient", "haclient", "types", "int", [ItemResult("int 1")], kills=2
        ),
    ]
    lines = tmp_path / "results.jsonl"
    # The first one is obsolete: a later run of the same case counts.
    old = CaseResult("pair", "1", "calm", "haclient", "haclient", "types", "int", items)
    lines.write_text("".join(f"{result.as_json()}\n" for result in (old, *results)))
    text = page.page(read([lines]))
    assert "| the pair | 3 | 2 | 0 | 0 | 1 | 2 |" in text
    assert "| int | **1 of 2** |" in text
    assert "Every value arrived: haclient → haclient." in text
    assert "| `int: int 2` | int 3 | no | 1 | `0053775403` |" in text
