"""Carries a trace context in a message, by the W3C draft for AMQP.

It is read from the message annotations, or, where those have none, from the application properties, whoever
wrote it.  Values are text, as propagators write them; the draft's binary form is not read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal, get_args

import proton
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from haclient.engine.codec import Encoder

logger = logging.getLogger("haclient")

Carrier = Literal["annotations", "properties"]


class Propagation:
    """Puts contexts into messages, and takes them out.

    :raises ValueError: for an unknown carrier.
    """

    def __init__(self, propagator: TextMapPropagator, carrier: Carrier) -> None:
        if carrier not in get_args(Carrier):
            raise ValueError(f"carrier: {carrier!r} is not one of {', '.join(get_args(Carrier))}")
        self.carrier = carrier
        self._propagator = propagator

    def context(self, message: proton.Message) -> Context:
        """The context in a message; an empty one if there is none."""
        for section in (message.annotations, message.properties):
            texts = _texts(section)
            if any(name in texts for name in self._propagator.fields):
                return self._propagator.extract(texts, Context())
        return Context()

    def addition(self, message: proton.Message) -> dict[Any, str]:
        """What to put into a message, of the context that is current here."""
        try:
            if span_context(self.context(message)).is_valid:
                return {}
            found: dict[str, str] = {}
            self._propagator.inject(found)
        except Exception:
            logger.exception("a trace context could not be put into a message")
            return {}
        if self.carrier == "properties":
            return dict(found)
        return {proton.symbol(name): value for name, value in found.items()}


def span_context(context: Context) -> trace.SpanContext:
    """The span that a context names."""
    return trace.get_current_span(context).get_span_context()


def _texts(section: Mapping[Any, Any] | None) -> dict[str, str]:
    return {
        str(key): value
        for key, value in (section or {}).items()
        if isinstance(key, str) and isinstance(value, str)
    }


class TracingEncoder(Encoder):
    """Encodes messages with the context that is current, and leaves them as they were."""

    __slots__ = ("_propagation",)

    def __init__(self, propagation: Propagation) -> None:
        super().__init__()
        self._propagation = propagation

    def encode(self, message: proton.Message, duplicate_id: str | None = None) -> bytes:
        """See ``Encoder.encode``."""
        added = self._propagation.addition(message)
        if not added:
            return super().encode(message, duplicate_id)
        carrier = self._propagation.carrier
        before = getattr(message, carrier)
        setattr(message, carrier, {**(before or {}), **added})
        try:
            return super().encode(message, duplicate_id)
        finally:
            setattr(message, carrier, before)
