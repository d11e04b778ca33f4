"""What connections go through, written down as JSON lines for ``haclient.analysis`` and other readers.

A factory's recorder (``record``) takes its events and turns them into lines (``jsonl``, by the keys of
``schema``, with nothing secret, ``veil``); the one writer thread of the process (``writer``) puts
them into files (``files``).  How, ``settings`` says.

The same events as metrics and spans: a ``sink`` counts them (``tally``, ``track``) for ``prometheus`` or
``opentelemetry``, which need the extra ``metrics``.
"""

from haclient.telemetry.settings import TelemetrySettings
from haclient.telemetry.writer import flush

__all__ = ["TelemetrySettings", "flush"]
