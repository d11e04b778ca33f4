"""Every behaviour by name. It draws its numbers, changes a connection, and returns the numbers as a text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.hostile.broker import of_connections, of_links, of_messages
from tests.hostile.broker.connection import HostileConnection

Behaviour = Callable[[HostileConnection, random.Random], str]

BEHAVIOURS: Mapping[str, Behaviour] = {
    **of_connections.BEHAVIOURS,
    **of_links.BEHAVIOURS,
    **of_messages.BEHAVIOURS,
}
