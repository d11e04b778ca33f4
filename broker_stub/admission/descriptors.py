"""How many client connections the file descriptors of this process allow."""

from __future__ import annotations

import resource
import sys

# Store, arbiter, telemetry, and the links to the other members.
_FILES = 200


def most_connections(handshakes: int) -> int:
    """How many connections the process has descriptors for, beside its handshakes and its own files.

    The handshakes get at most a quarter of the descriptors, and the files an eighth.
    """
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - min(handshakes, limit // 4) - min(_FILES, limit // 8)
