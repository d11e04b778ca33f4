"""Messages of real members in traces of OpenTelemetry's own SDK, on both APIs and through a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import proton
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import haclient
from haclient import Message, Outcome, aio
from haclient.errors import LinkClosed, MessageNotAccepted, ReceiveTimeout
from haclient.tracing import MessageTracing
from tests.members import Member, Members
from tests.telemetry.recorded import Recorded

SECRET = "Vq7PlantedBodyZx"
FAST = "backoff_base=0.01&backoff_max=0.1"
FIELD = proton.symbol("traceparent")


@pytest.fixture
def member(members: Members) -> Member:
    return members.start("a", role="primary")


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with Recorded() as found:
        yield found


def tracing(recorded: Recorded, **arguments: Any) -> MessageTracing:
    return MessageTracing(
        tracer_provider=recorded.tracer_provider, meter_provider=recorded.meter_provider, **arguments
    )


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def traceparent(span: ReadableSpan) -> str:
    trace_id, span_id = ids(span)
    assert span.context is not None
    return f"00-{trace_id:032x}-{span_id:016x}-{span.context.trace_flags:02x}"


def check_path_of_a_message(recorded: Recorded, member: Member) -> None:
    """Check the spans of a message sent inside a request, received and processed."""
    request, sent = recorded.named("request"), recorded.named("send orders")
    received, processed = recorded.named("receive orders"), recorded.named("process orders")
    inside = recorded.named("inside")
    assert parent(sent) == ids(request)
    assert (linked(received), parent(received)) == ([ids(sent)], None)
    assert (linked(processed), parent(processed)) == ([ids(sent)], ids(sent))
    assert parent(inside) == ids(processed)
    kinds = [span.kind for span in (sent, received, processed)]
    assert kinds == [SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER]
    for span in (sent, received, processed):
        told = dict(span.attributes or {})
        assert told["messaging.system"] == "amqp"
        assert told["messaging.destination.name"] == "orders"
        assert told["messaging.operation.name"] == span.name.split()[0] == told["messaging.operation.type"]
        assert (told["server.address"], told["server.port"]) == (member.endpoint.host, member.endpoint.port)
        assert told["messaging.client.id"] == "shop"
        assert told["messaging.message.id"] == "m-1"
        assert span.status.status_code is StatusCode.UNSET
    assert SECRET not in recorded.everything()


async def test_a_message_is_followed_on_the_asyncio_api(member: Member, recorded: Recorded) -> None:
    message = Message(id="m-1", body=SECRET, annotations={proton.symbol("x-mine"): 1})
    async with aio.connect(member.url, client_id="shop") as connection:
        traced = tracing(recorded).trace(connection)
        sender, receiver = await traced.create_sender("orders"), await traced.create_receiver("orders")
        with recorded.tracer.start_as_current_span("request"):
            outcome = await sender.send(message, timeout=30)
        assert outcome.accepted
        assert message.annotations == {proton.symbol("x-mine"): 1}
        delivery = await receiver.receive(timeout=30)
        with receiver.processing(delivery), recorded.tracer.start_as_current_span("inside"):
            await delivery.accept()
    assert delivery.message.annotations["x-mine"] == 1
    assert delivery.message.annotations[FIELD] == traceparent(recorded.named("send orders"))
    check_path_of_a_message(recorded, member)


def test_a_message_is_followed_on_the_blocking_api(member: Member, recorded: Recorded) -> None:
    with haclient.connect(member.url, client_id="shop") as connection:
        traced = tracing(recorded).trace(connection)
        with traced.create_sender("orders") as sender, traced.create_receiver("orders") as receiver:
            with recorded.tracer.start_as_current_span("request"):
                future = sender.submit(Message(id="m-1", body=SECRET), timeout=30)
                sender.flush(timeout=30)
            assert future.result(timeout=30).accepted
            delivery = next(receiver)
            with receiver.processing(delivery), recorded.tracer.start_as_current_span("inside"):
                delivery.accept()
            assert (sender.address, receiver.address, sender.unsettled) == ("orders", "orders", 0)
    assert delivery.message.annotations[FIELD] == traceparent(recorded.named("send orders"))
    check_path_of_a_message(recorded, member)


async def test_a_body_without_a_message_is_followed_too(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        sender, receiver = await traced.create_sender("orders"), await traced.create_receiver("orders")
        await sender.send("one", timeout=30)
        await (await sender.submit({"order": 2}))
        await sender.submit_nowait(b"three")
        for body in ("one", {"order": 2}, b"three"):
            delivery = await receiver.receive(timeout=30)
            assert delivery.body == body
            assert FIELD in delivery.message.annotations
    with haclient.connect(member.url) as connection:
        link = tracing(recorded).trace(connection).create_sender("q")
        link.send("three", timeout=30)
        link.submit(4).result(30)
        link.submit_nowait(5).result(30)
    names = [span.name for span in recorded.spans if span.name.startswith("send")]
    assert names == ["send orders"] * 3 + ["send q"] * 3


async def test_a_send_across_a_failover_is_one_span_and_one_context(
    members: Members, recorded: Recorded
) -> None:
    primary, passive = members.pair()
    async with aio.connect(f"amqp://{primary.address},{passive.address}?{FAST}") as connection:
        traced = tracing(recorded).trace(connection)
        sender = await traced.create_sender("orders")
        await sender.send(Message(body="before"))
        await asyncio.to_thread(primary.pause)  # it takes the bytes, and settles nothing
        pending = await sender.submit(Message(body="across"))
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(passive.promote)
        assert (await asyncio.wait_for(pending, 30)).accepted
        receiver = await traced.create_receiver("orders")
        found = {}
        while "across" not in found:
            delivery = await receiver.receive(timeout=30)
            found[delivery.message.body] = delivery.message
        assert connection.endpoint == passive.endpoint
    sent = {traceparent(span): span for span in recorded.spans if span.name == "send orders"}
    assert len(sent) == 2
    across = sent[found["across"].annotations[FIELD]]
    assert dict(across.attributes or {})["server.port"] == passive.endpoint.port
    assert across.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("carrier", ["annotations", "properties"])
async def test_the_context_is_where_it_was_asked_for_and_found_in_either_place(
    carrier: Any, member: Member, recorded: Recorded
) -> None:
    message = Message(body="x", properties={"mine": 1})
    async with aio.connect(member.url) as connection:
        sender = await tracing(recorded, carrier=carrier).trace(connection).create_sender("q")
        await sender.send(message)
        receiver = await tracing(recorded).trace(connection).create_receiver("q")
        delivery = await receiver.receive(timeout=30)
    got = delivery.message
    assert message.properties == {"mine": 1}
    assert (FIELD in (got.annotations or {}), "traceparent" in got.properties) == (
        carrier == "annotations",
        carrier == "properties",
    )
    assert got.properties["mine"] == 1
    assert b"_AMQ_DUPL_ID" in delivery.data
    assert linked(recorded.named("receive q")) == [ids(recorded.named("send q"))]


async def test_annotations_win_over_properties(member: Member, recorded: Recorded) -> None:
    old, new = f"00-{1:032x}-{1:016x}-01", f"00-{2:032x}-{2:016x}-01"
    message = Message(
        body="x", annotations={FIELD: new}, properties={"traceparent": old, "tracestate": "a=b"}
    )
    async with aio.connect(member.url) as connection:
        await (await connection.create_sender("q")).send(message)
        receiver = await tracing(recorded).trace(connection).create_receiver("q")
        await receiver.receive(timeout=30)
    assert linked(recorded.named("receive q")) == [(2, 2)]


async def test_a_message_that_is_forwarded_keeps_its_context(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        first, second = await traced.create_sender("in"), await traced.create_sender("out")
        await first.send(Message(body="x"))
        async for delivery in await traced.create_receiver("in"):
            await second.send(delivery.message)
            await delivery.accept()
            break
        forwarded = await (await connection.create_receiver("out")).receive(timeout=30)
    sent = recorded.named("send in")
    assert forwarded.message.annotations[FIELD] == traceparent(sent)
    assert linked(recorded.named("send out")) == [ids(sent)]


async def test_the_same_message_sent_twice_has_a_context_each_time(
    member: Member, recorded: Recorded
) -> None:
    message = Message(body="x")
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        sender = await traced.create_sender("q")
        await asyncio.gather(sender.send(message), sender.send(message), sender.send(message))
        receiver = await connection.create_receiver("q")
        deliveries = [await receiver.receive(timeout=30) for _ in range(3)]
    carried = {delivery.message.annotations[FIELD] for delivery in deliveries}
    assert carried == {traceparent(span) for span in recorded.spans}
    assert len(carried) == 3
    assert message.annotations is None


async def test_processing_inside_another_span_is_its_child(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        await (await traced.create_sender("q")).send(Message(body="x"))
        receiver = await traced.create_receiver("q")
        delivery = await receiver.receive(timeout=30)
        with recorded.tracer.start_as_current_span("job"), receiver.processing(delivery):
            await delivery.accept()
    processed = recorded.named("process q")
    assert parent(processed) == ids(recorded.named("job"))
    assert linked(processed) == [ids(recorded.named("send q"))]


async def test_addresses_that_a_peer_makes_up_are_not_in_names(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        replies = await traced.create_receiver(None, dynamic=True)
        anyone = await traced.create_sender(None)
        await anyone.send(Message(address=replies.address, body="x"))
        await replies.receive(timeout=30)
    assert {span.name for span in recorded.spans} == {"send", "receive"}
    assert dict(recorded.named("receive").attributes or {})["messaging.destination.temporary"] is True


# -- errors -----------------------------------------------------------------------------------


async def test_a_send_that_fails_is_an_error_by_its_type_alone(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        sender = await tracing(recorded).trace(connection).create_sender("q")
        await sender.close()
        with pytest.raises(LinkClosed):
            await sender.send(Message(body=SECRET))
        with pytest.raises(LinkClosed):
            await sender.submit(Message(body=SECRET))
    assert len(recorded.spans) == 2
    for span in recorded.spans:
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "LinkClosed")
        assert dict(span.attributes or {})["error.type"] == "LinkClosed"
        assert not span.events
    # The messages never left, so they were not sent.
    assert not recorded.points("messaging.client.sent.messages")
    assert SECRET not in recorded.everything()


async def test_a_receive_that_got_nothing_leaves_no_span_and_one_that_failed_does(
    member: Member, recorded: Recorded
) -> None:
    async with aio.connect(member.url) as connection:
        receiver = await tracing(recorded).trace(connection).create_receiver("q")
        with pytest.raises(ReceiveTimeout):
            await receiver.receive(timeout=0.01)
        assert not recorded.spans
        await receiver.close()
        with pytest.raises(LinkClosed):
            await receiver.receive()
        assert [each async for each in receiver] == []
    assert {span.status.description for span in recorded.spans} == {"LinkClosed"}


async def test_what_fails_while_processing_is_raised(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        await (await traced.create_sender("q")).send(Message(body="x"))
        receiver = await traced.create_receiver("q")
        delivery = await receiver.receive(timeout=30)
        with pytest.raises(ValueError, match=SECRET), receiver.processing(delivery):
            raise ValueError(SECRET)
    assert dict(recorded.named("process q").attributes or {})["error.type"] == "ValueError"
    assert SECRET not in recorded.everything()


class Broken(TextMapPropagator):
    """A propagator that fails."""

    def extract(self, *_: Any, **__: Any) -> Context:
        raise ZeroDivisionError

    def inject(self, *_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    @property
    def fields(self) -> set[str]:
        return {"traceparent"}


async def test_tracing_that_fails_is_logged_and_messages_flow(
    member: Member, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    working = tracing(recorded)
    broken = tracing(recorded, propagator=Broken())
    broken._tracer.start_span = refuse  # type: ignore[method-assign, assignment]
    async with aio.connect(member.url) as connection:
        sender = await broken.trace(connection).create_sender("q")
        await sender.send(Message(body="one"))
        await (await sender.submit(Message(body="two")))
        await (await working.trace(connection).create_sender("q")).send(Message(body="three"))
        receiver = await broken.trace(connection).create_receiver("q")
        for body in ("one", "two", "three"):
            delivery = await receiver.receive(timeout=30)
            with receiver.processing(delivery):
                assert delivery.message.body == body
                await delivery.accept()
    assert "a message could not be traced" in caplog.text
    assert "a trace context could not be put into a message" in caplog.text


async def test_a_carrier_that_there_is_not_is_refused(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="'headers' is not one of annotations, properties"):
        tracing(recorded, carrier="headers")


# -- metrics and baggage ----------------------------------------------------------------------


async def test_metrics_have_the_names_of_the_conventions(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        traced = tracing(recorded).trace(connection)
        sender, receiver = await traced.create_sender("q"), await traced.create_receiver("q")
        for _ in range(3):
            await sender.send(Message(body="x"))
            delivery = await receiver.receive(timeout=30)
            with receiver.processing(delivery):
                await delivery.accept()
    operations = {
        point.attributes["messaging.operation.name"]: point
        for point in recorded.points("messaging.client.operation.duration")
    }
    assert {name: point.count for name, point in operations.items()} == {"send": 3, "receive": 3}
    assert operations["send"].explicit_bounds[-1] == 10.0
    for name in ("messaging.client.sent.messages", "messaging.client.consumed.messages"):
        assert [point.value for point in recorded.points(name)] == [3]
    (processing,) = recorded.points("messaging.process.duration")
    assert processing.count == 3
    for point in (*operations.values(), processing):
        assert point.attributes["messaging.destination.name"] == "q"
        assert "messaging.client.id" not in point.attributes


async def test_what_else_the_propagator_writes_goes_along(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        sender = await tracing(recorded).trace(connection).create_sender("q")
        token = attach(baggage.set_baggage("tenant", "7"))
        try:
            await sender.send(Message(body="x"))
        finally:
            detach(token)
        delivery = await (await connection.create_receiver("q")).receive(timeout=30)
    assert delivery.message.annotations[proton.symbol("baggage")] == "tenant=7"


async def test_without_an_sdk_the_context_of_the_request_is_passed_on(member: Member) -> None:
    here = trace.SpanContext(3, 4, is_remote=True, trace_flags=trace.TraceFlags(1))
    async with aio.connect(member.url) as connection:
        traced = MessageTracing(tracer_provider=trace.NoOpTracerProvider()).trace(connection)
        sender = await traced.create_sender("q")
        with trace.use_span(trace.NonRecordingSpan(here)):
            outcome: Outcome = await sender.send(Message(body="x"))
        assert outcome.accepted
        delivery = await (await connection.create_receiver("q")).receive(timeout=30)
    assert delivery.message.annotations[FIELD] == f"00-{3:032x}-{4:016x}-01"


async def test_a_rejected_message_counts_as_sent(member: Member, recorded: Recorded) -> None:
    async with aio.connect(member.url) as connection:
        sender = await tracing(recorded).trace(connection).create_sender(None)
        with pytest.raises(MessageNotAccepted):
            await sender.send(Message(body=SECRET))  # to nowhere
    (point,) = recorded.points("messaging.client.sent.messages")
    assert (point.value, point.attributes["error.type"]) == (1, "MessageNotAccepted")
    assert SECRET not in recorded.everything()
