"""Carries a trace context in a message, by the W3C draft for AMQP.

The context is read from the message annotations, or from the application properties if those have none.
Values are text, as propagators write them; the draft's binary form is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import proton
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from haclient.core.message_encoder import Additions, OutgoingMessage
from haclient.printable.log import get_logger

logger = get_logger("haclient")

Carrier = Literal["annotations", "properties"]


class Propagation:
    """Writes contexts into messages, and reads them.

    :raises ValueError: for an unknown carrier.
    """

    def __init__(self, propagator: TextMapPropagator, carrier: Carrier) -> None:
        if carrier not in get_args(Carrier):
            raise ValueError(f"carrier: {carrier!r} is not one of {', '.join(get_args(Carrier))}")
        self._carrier = carrier
        self._propagator = propagator

    def context(self, message: proton.Message) -> Context:
        """Return the context in a message; an empty one if there is none."""
        for section in (message.annotations, message.properties):
            texts = _texts(section)
            if any(name in texts for name in self._propagator.fields):
                return self._propagator.extract(texts, Context())
        return Context()

    def additions(self, outgoing: OutgoingMessage) -> Additions | None:
        """Return the current context as additions (an ``EncodeHook``); ``None`` if the message has one."""
        try:
            if span_context(self.context(outgoing.message)).is_valid:
                return None
            found: dict[str, str] = {}
            self._propagator.inject(found)
        except Exception:
            logger.exception("a trace context could not be put into a message")
            return None
        if self._carrier == "properties":
            return Additions(properties=found)
        return Additions(annotations={proton.symbol(name): value for name, value in found.items()})


def span_context(context: Context) -> trace.SpanContext:
    """Return the span that a context names."""
    return trace.get_current_span(context).get_span_context()


def _texts(section: Mapping[Any, Any] | None) -> dict[str, str]:
    return {
        str(key): value
        for key, value in (section or {}).items()
        if isinstance(key, str) and isinstance(value, str)
    }
