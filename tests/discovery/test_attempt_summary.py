"""The summary of failed attempts has one line for each endpoint, however many attempts there were."""

from __future__ import annotations

from haclient.cluster_url.endpoint import Endpoint, Origin
from haclient.discovery.attempt_summary import describe_failures, summarize
from haclient.discovery.evidence import AttemptRecord, Failure, FailureReason

A, B = Endpoint("amqp-a", 5672), Endpoint("amqp-b", 5671, tls=True)
REFUSED = Failure(kind=FailureReason.REFUSED, detail="connection refused")


def record(number: int, endpoint: Endpoint, ended: float, failure: Failure = REFUSED) -> AttemptRecord:
    return AttemptRecord(number=number, endpoint=endpoint, started=0.0, ended=ended, failure=failure)


def closed(detail: str) -> Failure:
    return Failure(kind=FailureReason.CLOSED, detail=detail)


def test_each_endpoint_has_one_line_and_the_latest_comes_first() -> None:
    attempts = [record(2 * n + 1, A, 10.0 + n) for n in range(27)] + [record(2, B, 11.0)]
    attempts += [record(n, A, 1.0) for n in range(55, 83)]
    assert summarize(attempts[:28], 36.4) == [
        "amqp://amqp-a:5672: 27 times connection refused; last 0.4 s ago",
        "amqps://amqp-b:5671: once connection refused; last 25.4 s ago",
        "(the last 28 of 53 attempts)",
    ]


def test_an_endpoint_with_several_reasons_lists_them_the_latest_first() -> None:
    forced = closed("amqp:connection:forced: not yet")
    attempts = [
        record(1, A, 1.0, forced),
        record(2, A, 2.0),
        record(3, A, 3.0),
        record(4, A, 4.0, forced),
        record(5, A, 5.0, Failure(kind=FailureReason.TIMED_OUT, detail="not usable within 4 s")),
    ]
    (line,) = summarize(attempts, 5.0)
    assert line == (
        "amqp://amqp-a:5672: once timed-out (not usable within 4 s), "
        "2 times closed (amqp:connection:forced: not yet), 2 times connection refused; last 0.0 s ago"
    )


def test_reasons_and_endpoints_have_a_limit_and_a_line_stays_a_line() -> None:
    chatty = [record(n, A, float(n), closed(f"try\nme {n}")) for n in range(1, 101)]
    (line,) = summarize(chatty, 100.0)
    assert line.startswith("amqp://amqp-a:5672: once closed (try me 100), once closed (try me 99), ")
    assert line.endswith(", and 95 more reasons; last 0.0 s ago")
    many = [record(n, Endpoint(f"host-{n}", 5672), float(n)) for n in range(1, 101)]
    lines = summarize(many, 100.0)
    assert len(lines) == 21
    assert lines[0].startswith("amqp://host-100:5672: ")
    assert lines[-1] == "and 80 more endpoints"


def test_an_address_is_shown_with_the_name_it_was_found_by() -> None:
    found = Endpoint("10.0.0.7", 5672, server_name="amqp-a", origin=Origin.RESOLVED)
    assert describe_failures([(found, REFUSED), (B, Failure(kind=FailureReason.ENDED))]) == (
        "amqp://10.0.0.7:5672 (amqp-a): connection refused; amqps://amqp-b:5671: ended"
    )


def test_nothing_was_tried() -> None:
    assert summarize([], 1.0) == []
    assert describe_failures([]) == ""
