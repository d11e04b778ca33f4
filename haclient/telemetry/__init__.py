"""Writes the events of connections as JSON lines, for ``haclient.analysis`` and other readers.

A factory's recorder (``record``) turns its events into lines (``jsonl``, by the keys of
``schema``, without secrets, ``redact``); the one writer thread of the process (``writer``) puts
them into files (``files``), as ``settings`` says.

The same events as metrics and spans: a ``sink`` counts them (``event_counter``, ``connection_tracker``) for
``prometheus`` or
``opentelemetry``, which need the extra ``metrics``.
"""

from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import flush

__all__ = ["TelemetrySettings", "flush"]
