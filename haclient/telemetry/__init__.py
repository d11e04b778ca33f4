"""Writes the events of connections as JSON lines, for ``haclient.analysis`` and other readers.

A factory's recorder (``record``) turns its events into lines: ``jsonl`` encodes them with the keys of
``schema``, and ``redact`` removes secrets.  The one writer thread of the process (``writer``) puts them into
files (``files``), as ``settings`` defines.

A ``sink`` turns the same events into metrics and spans: it counts them (``event_counter``,
``connection_tracker``) for ``prometheus`` or ``opentelemetry``, which need the extra ``metrics``.

The writer is imported only when telemetry is on.
"""

from __future__ import annotations

from haclient.telemetry.settings import TelemetrySettings

__all__ = ["TelemetrySettings", "flush"]


def flush(timeout: float = 10.0) -> bool:
    """Wait until all events so far are written.

    Needed only before ``os._exit`` and ``exec``; a process that exits normally flushes by itself.

    :param timeout: seconds.
    :returns: whether it finished in time; also true if the disk did not accept the lines.
    """
    from haclient.telemetry import writer  # noqa: PLC0415 - not loaded where telemetry is off

    return writer.flush(timeout)
