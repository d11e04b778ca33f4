"""The reaction of a link at the limit; a separate module, for the options of the commands."""

from __future__ import annotations

import enum


class AtLimit(enum.StrEnum):
    """The reaction of a link when this site has no capacity for an event."""

    HOLD = "hold"
    """The link waits.  The source keeps its events, and its own limits stop its producers."""
    STOP = "stop"
    """The link ends with an anomaly; an operator starts it again."""
