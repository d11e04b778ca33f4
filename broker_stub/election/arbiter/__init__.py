"""Who may be primary: one record, (generation, claim, cluster), changed only by compare-and-set.

Rules
-----
* Of all that compare-and-set from the same record, wherever they run, exactly one wins.
* What was won or read is durable: no later reader sees an older record.
* A record that is there and cannot be understood, or was there and is not any more, is an error and never
  (0, ""): generations that start again would let an old store win.
* Every call ends in bounded time.  ``ArbiterUnavailableError`` from ``compare_and_set`` means that the
  outcome is not known; the caller settles nothing more (rule 3 of ``broker_stub.election.generation``).

``directory`` is a directory that all members can write, ``zookeeper`` a ZooKeeper ensemble, and ``memory``
an object, for members in one process.
"""

from __future__ import annotations

from broker_stub.election.arbiter.record import Arbiter, ArbiterMissingError, ArbiterUnavailableError
from broker_stub.election.arbiter.urls import open_arbiter

__all__ = ["Arbiter", "ArbiterMissingError", "ArbiterUnavailableError", "open_arbiter"]
