"""Writes the events of connections as JSON lines, for ``haclient.analysis`` and other readers.

A factory's recorder (``record``) turns its events into lines (``jsonl``, by the keys of
``schema``, without secrets, ``redact``); the one writer thread of the process (``writer``) puts
them into files (``files``), as ``settings`` says.

The same events as metrics and spans: a ``sink`` counts them (``event_counter``, ``connection_tracker``) for
``prometheus`` or ``opentelemetry``, which need the extra ``metrics``.

The writer is imported when telemetry is on, and not before.
"""

from __future__ import annotations

from haclient.telemetry.settings import TelemetrySettings

__all__ = ["TelemetrySettings", "flush"]


def flush(timeout: float = 10.0) -> bool:
    """Wait until all events so far are written.

    Needed before ``os._exit`` and ``exec`` only; a process that exits normally flushes by itself.

    :param timeout: seconds.
    :returns: whether it finished in time; also when the disk did not take the lines.
    """
    from haclient.telemetry import writer  # noqa: PLC0415 - not loaded where telemetry is off

    return writer.flush(timeout)
