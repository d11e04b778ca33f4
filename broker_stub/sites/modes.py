"""What of a queue another site gets: the values of ``x-qpid-site-replicate``.  No I/O."""

from __future__ import annotations

import enum

SITE_PROPERTY = "x-qpid-site-replicate"
REPLICATION_QUEUE = "site-replication"
"""The queue that holds a site's events; there is one, and only the site puts anything into it."""


FOLLOW = "haclient:follow"
"""What a link asks for in its Open: to be served by the primary only, as any client is."""


class SiteMode(enum.StrEnum):
    """Which events a queue has."""

    NONE = "none"
    ENQUEUES = "enqueues"
    ALL = "all"
