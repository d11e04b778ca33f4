"""What a link from another site does at the limit; apart from the link, for the options of the commands."""

from __future__ import annotations

import enum


class AtLimit(enum.StrEnum):
    """What a link does when this site has no room for an event."""

    HOLD = "hold"
    """It waits: the source keeps its events, and its own limits hold its producers up."""
    STOP = "stop"
    """It ends, with an anomaly; an operator starts it again."""
