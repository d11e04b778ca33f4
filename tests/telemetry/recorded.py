"""OpenTelemetry's own SDK, and its recorded data."""

from __future__ import annotations

from typing import Any, Self

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Recorded:
    """Providers of the SDK, and their data."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider([self._reader])
        self.tracer = self.tracer_provider.get_tracer("test")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tracer_provider.shutdown()
        self.meter_provider.shutdown()

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """Return the one span of that name."""
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def metrics(self) -> list[Any]:
        data = self._reader.get_metrics_data()
        resources = () if data is None else data.resource_metrics
        return [
            metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics
        ]

    def points(self, name: str) -> list[Any]:
        return [
            point for metric in self.metrics() if metric.name == name for point in metric.data.data_points
        ]

    def everything(self) -> str:
        spans = "".join(span.to_json() for span in self.spans)
        data = self._reader.get_metrics_data()
        return spans + (data.to_json() if data is not None else "")
