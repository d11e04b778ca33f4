"""Trace a message (sent, received, processed) and its connection; print the spans as JSON.

    pip install '.[metrics]' opentelemetry-sdk
    python examples/opentelemetry_traces.py [URL]

An application that exports to a collector sets up the providers once, and needs nothing else of this file.
"""

from __future__ import annotations

import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

import haclient
from haclient.telemetry.opentelemetry import OpenTelemetrySink
from haclient.tracing import MessageTracing


def main(url: str) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
    trace.set_tracer_provider(provider)

    with haclient.connect(url, on_event=OpenTelemetrySink()) as connection:
        traced = MessageTracing().trace(connection)
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            traced.create_sender("orders").send("tea")

        receiver = traced.create_receiver("orders")
        delivery = receiver.receive(timeout=10)
        with receiver.processing(delivery):  # a child of "checkout", in this process or in another
            delivery.accept()
    provider.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672")
