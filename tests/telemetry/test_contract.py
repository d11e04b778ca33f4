"""The contract: schemas, vectors and our validator agree with jsonschema, and with written lines."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import jsonschema
import proton
import pytest
from click.testing import CliRunner, Result
from hypothesis import given

from broker_stub.election.roles import Membership, Role
from broker_stub.sites.anomalies import Anomaly
from broker_stub.telemetry import anomaly_facts, site_facts
from broker_stub.telemetry.writer import MemberTelemetry
from haclient import events
from haclient.cli import main
from haclient.cluster_url.endpoint import Endpoint
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason
from haclient.retry.strategies import StrategyName
from haclient.telemetry import TelemetrySettings, flush
from haclient.telemetry.contract import check, paths
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from haclient.telemetry.schema import DATA, KEYS, RESOURCE, Kind, Reason
from haclient.telemetry.writer import Alive
from scripts.generate import event_types, json_schema
from scripts.generate.event_types import EVENT_TYPES
from tests.telemetry.lines import lines
from tests.telemetry.mutations import is_quarantined, mutated, vectors

NOW = datetime(2026, 11, 22, tzinfo=UTC)
READERS = check.schemas()[check.READERS]
FORMATS = jsonschema.FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _is_time(text: object) -> bool:
    """Read a time with the standard library, which has no leap second and no large year."""
    if isinstance(text, str):
        at, zone = text.upper().replace(":60", ":59").lstrip("+"), text[19:]
        if len(text) < len("2026-11-21T02:00:00Z") or not ("Z" in zone.upper() or ":" in zone):
            raise ValueError(text)
        datetime.fromisoformat(at[1:] if at[4:5].isdigit() else at)
    return True


def judges() -> Mapping[str, Any]:
    """Return the library's validators, by type."""
    made = jsonschema.Draft202012Validator
    return {name: made(schema, format_checker=FORMATS) for name, schema in check.schemas().items()}


JUDGES = judges()


def test_the_files_are_what_the_tables_say_and_are_schemas_of_2020_12() -> None:
    """``python -m scripts.generate`` writes them."""
    assert check.schemas() == json_schema.documents()
    assert {path.stem for path in json_schema.FOLDER.iterdir()} == {*map(str, Kind), check.READERS}
    for schema in check.schemas().values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert [each.kind for each in EVENT_TYPES] == list(Kind)


def test_every_key_is_of_some_type_and_has_its_type() -> None:
    used = {column for each in EVENT_TYPES for column in (*each.required, *each.optional)}
    assert used == {key.column for key in DATA}
    for each in EVENT_TYPES:
        described = check.schemas()[each.kind]["properties"]
        known = {*described, *described["data"]["properties"]}
        assert known <= {key.name for key in KEYS} | {"data"}


def test_the_values_are_those_of_the_code() -> None:
    assert set(event_types.FAILURES) == {each.value for each in FailureReason}
    # Files of earlier versions have the other names.
    former = {"equal", "decorrelated", "exponential", "constant"}
    assert set(event_types.STRATEGIES) == {*get_args(StrategyName), *former}
    assert set(event_types.ROLES) == set(Role)


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["name"])
def test_a_vector_is_judged_as_it_says_by_us_and_by_the_library(vector: dict[str, Any]) -> None:
    verdict = check.check(vector["line"], NOW)
    assert (verdict.reason, vector["reason"]) == (vector["reason"], verdict.reason)
    if vector["detail"]:
        assert verdict.detail == vector["detail"]
    assert by_the_library(vector["line"]) == verdict.reason or "exponent" in vector["name"]


def by_the_library(text: str) -> str | None:
    """Return jsonschema's verdict in our words, except for the time that depends on the day."""
    try:
        line = json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return Reason.NOT_JSON
    wrong = sorted(JUDGES[check.READERS].iter_errors(line), key=lambda error: list(map(str, error.path)))
    if wrong:
        return _reason(line, wrong)
    if not check.is_plausible(line["time"], NOW):
        return Reason.IMPLAUSIBLE
    judge = JUDGES.get(str(line["type"]))
    return None if judge is None or judge.is_valid(line) else Reason.VIOLATION


def _reason(line: object, wrong: list[jsonschema.ValidationError]) -> str:
    if not isinstance(line, dict):
        return Reason.NOT_JSON
    if any(line.get(name) is None for name in ("id", "type")):
        return Reason.NO_ID
    first = {str(error.path[0]) if error.path else "time" for error in wrong}
    if "time" in first:
        return Reason.NO_TIME
    return Reason.OTHER_VERSION if "dataschema" in first else Reason.OTHER_TYPE


@given(mutated())
def test_a_mutated_line_is_judged_alike_by_the_library(text: str) -> None:
    verdict = check.check(text, NOW)
    theirs = by_the_library(text)
    assert (verdict.reason is None) == (theirs is None), (verdict, theirs)
    assert is_quarantined(verdict) == (theirs not in {None, Reason.VIOLATION}), (verdict, theirs)


# -- files ----------------------------------------------------------------------------------------


def right(count: int) -> str:
    (vector,) = (each for each in vectors() if each["name"].startswith("haclient.connection.lost:"))
    return f"{vector['line']}\n" * count


def run(*arguments: object, given_: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["telemetry", "validate", *map(str, arguments)], input=given_)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make seven valid lines and five faults, in plain and compressed files."""
    (tmp_path / "below").mkdir()
    (tmp_path / "a.jsonl").write_text(f"{right(2)}\nno line\n{right(1)}")
    broken = right(1).replace('"haclient.unsettled":4', '"x":4')
    (tmp_path / "below" / "b.jsonl.gz").write_bytes(gzip.compress((right(3) + broken * 2).encode()))
    whole = gzip.compress(right(1).encode() * 5000, 1)
    (tmp_path / "below" / "c.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "d.jsonl").write_text(right(1).replace(".lost", ".later") + right(1)[:-30])
    (tmp_path / ".hidden.jsonl.gz.tmp").write_bytes(b"\0")
    return tmp_path


def test_all_complaints_are_counted_and_the_first_of_each_has_its_place(folder: Path) -> None:
    shown = run(folder, "--json")
    assert shown.exit_code == 1, shown.output
    found = json.loads(shown.stdout)
    assert (found["files"], found["wrong"]) == (4, 5)
    places = {
        (each["reason"], each["detail"]): (Path(each["file"]).name, each["line"], each["count"])
        for each in found["complaints"]
    }
    cut = places.pop((Reason.CUT_SHORT, ""))
    assert (cut[0], cut[2]) == ("c.jsonl.gz", 1)
    assert places == {
        (Reason.NOT_JSON, ""): ("a.jsonl", 4, 2),
        (Reason.VIOLATION, "data.haclient.unsettled: missing"): ("b.jsonl.gz", 4, 2),
    }
    (unknown,) = found["unknown_types"]
    assert (unknown["type"], unknown["count"], unknown["line"]) == ("haclient.connection.later", 1, 1)


def test_people_see_the_same(folder: Path) -> None:
    shown = run(folder)
    assert shown.exit_code == 1
    assert "5 wrong" in shown.stdout
    assert "not JSON, or cut short" in shown.stdout
    assert "1 of the unknown type haclient.connection.later" in shown.stdout


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_plain_and_compressed(packed: bool) -> None:
    text = right(3).encode()
    shown = run("-", given_=gzip.compress(text) if packed else text)
    assert (shown.exit_code, shown.stdout) == (0, "3 lines in 1 file: 3 right, 0 wrong\n")


def test_what_cannot_be_read_exits_with_3(tmp_path: Path) -> None:
    assert run(tmp_path / "gone").exit_code == 3
    assert run(tmp_path).exit_code == 3  # nothing in it
    (tmp_path / "part.parquet").write_bytes(b"PAR1")
    assert run(tmp_path).exit_code == 3
    assert run().exit_code == 2


def test_memory_is_bounded_whatever_the_lines_are(tmp_path: Path) -> None:
    """The input has a line of 64 MiB, and more different faults than are remembered."""
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        file.write('{"id":"' + "x" * 2**26 + '"}\n')
        for number in range(3 * paths.MOST):
            file.write(right(1).replace(".lost", f".later{number}"))
            file.write(right(1).replace('"server.port":5672', f'"server.port":"{number}"'))
    tracemalloc.start()
    found = paths.validate([str(path)], NOW)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * paths.LONGEST
    assert found.lines == 1 + 6 * paths.MOST
    assert found.complaints[paths.Complaint(Reason.TOO_LONG)].count == 1
    assert len(found.unknown_types) == paths.MOST + 1


# -- written lines ----------------------------------------------------------------------------------

HERE, THERE = Endpoint("broker-a", 5672), Endpoint("broker-b", 5673)
FAILED = Failure(kind=FailureReason.CLOSED, detail="x", condition="amqp:connection:forced", retry_after=1.5)


def client_events() -> Iterator[events.Event]:
    """Return an event of each type, in a plausible order."""

    def stamp(number: int, episode: int = 1, connection: int = 1) -> events.Stamp:
        return events.Stamp(
            client_id="orders-1",
            connection=connection,
            sequence=number,
            time=1_795_000_000.0 + number,
            monotonic=5.0 + number,
            episode=episode,
        )

    yield events.AttemptStarted(stamp(1), 1, HERE)
    ended = AttemptRecord(number=1, endpoint=HERE, started=6.0, ended=6.5, failure=FAILED)
    yield events.AttemptFailed(stamp(2), ended)
    yield events.BackingOff(stamp(3), 0.05, 0.1, 1.5, 0, 0.0)
    yield events.Redirected(stamp(4), HERE, THERE, followed=True, detail="it names the primary")
    yield events.AttemptStarted(stamp(5), 2, THERE)
    yield events.Connected(stamp(6), THERE, 3, 2, 1.25, cluster="prod")
    yield events.Disconnected(stamp(7), THERE, "the peer closed the socket", 4)
    yield events.Unsettled(stamp(8, 2), 1, "it was closed", "sender-1", "orders")
    yield events.GenerationsForgotten(stamp(9, 2), HERE, 2, "prod", 3)
    yield events.Unsettled(stamp(10, 2), 3, "it gave up")
    yield events.GaveUp(stamp(11, 2), "deadline", FAILED, "deadline", 3, 60.0)
    yield events.Closed(stamp(1, 1, 2))
    yield events.AttemptStarted(stamp(1, 1, 3), 1, HERE)


def write_all(folder: Path) -> None:
    """Write a line of every type, by the client's recorder and a member's."""
    attributes = {key.name: "x" for key in RESOURCE}
    settings = TelemetrySettings(folder, attributes=attributes, alive_interval=0.01)
    recorder = Recorder(settings, Redactor(), backoff_max=30.0)
    for event in client_events():
        recorder.put(event)
    recorder.dropped = 2
    recorder.put(Alive(3))  # type: ignore[arg-type]
    log, leading = MemberTelemetry(settings, cluster="prod", name="a"), Membership(Role.PRIMARY, 4)
    log.listens(HERE)
    log.record(Kind.MEMBER_ROLE, leading)
    condition = proton.Condition("amqp:connection:forced", "later", {proton.symbol("retry-after"): 1500})
    log.record(Kind.MEMBER_REFUSED, leading, client_id="orders-1", condition=condition)
    log.record(Kind.MEMBER_UNPARKED, leading, client_id="orders-1", condition=condition)
    log.record(Kind.MEMBER_ADMITTED, leading, client_id=None)
    log.record(Kind.MEMBER_PARKED, leading, client_id="orders-1")
    link = {"name": "from-a", "duplicates": 0, "gaps": 1, "last_sequence": {}, "state": "connected"}
    source = {"lag_events": 2, "last_sequence": 9, "lag_seconds": 0.5}
    for facts in site_facts({"source": source, "links": [{**link, "delay_seconds": None}]}):
        log.record(Kind.MEMBER_SITE, leading, **facts)
    log.record(Kind.MEMBER_ANOMALY, leading, **anomaly_facts(Anomaly("from-a", "gaps", 1, 7, "x")))
    log.record(Kind.MEMBER_DISK, leading, state="hold")
    log.record(Kind.MEMBER_SET_ASIDE, leading, replica="b", queue="orders", state="copied")
    flush()


def test_every_type_that_is_written_is_as_its_schema_says(tmp_path: Path) -> None:
    """``lines`` checks every line that any test of the suite reads; here is one of each."""
    write_all(tmp_path)
    written = lines(tmp_path)
    assert {line["type"] for line in written} == set(map(str, Kind))
    for line in written:
        JUDGES[line["type"]].validate(line)
        assert {key.name for key in RESOURCE} <= line["data"].keys()
    for each in EVENT_TYPES:
        data = [line["data"] for line in written if line["type"] == each.kind]
        optional = {event_types.COLUMNS[column].name for column in each.optional}
        assert not optional - set().union(*data) - NOT_HERE, each.kind
    assert run(tmp_path).exit_code == 0


# Keys that no line above has, because another key excludes them, or they follow later.
NOT_HERE = {"haclient.close.condition", "haclient.close.reason", "haclient.cluster", "haclient.retry_after"}
NOT_HERE |= {"server.address", "server.port", "haclient.generation", "messaging.client.id"}
