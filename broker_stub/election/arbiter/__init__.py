"""The arbiter of the election: one record, (generation, claim, cluster), changed only by compare-and-set.

Rules
-----
* Of all compare-and-set calls from the same record, wherever they run, exactly one wins.
* A record that was won or read is durable: no later reader sees an older record.
* It is an error if the record exists and is malformed, or if it existed and is missing. Neither is ever read
  as (0, ""): with restarted generations an old store would win.
* Every call ends in bounded time. ``ArbiterUnavailableError`` from ``compare_and_set`` means that the outcome
  is unknown; the caller settles nothing more (rule 3 of ``broker_stub.election.generation``).

``directory`` is a directory that all members can write, ``zookeeper`` a ZooKeeper ensemble, and ``memory`` an
object for members in one process.
"""

from __future__ import annotations

from broker_stub.election.arbiter.record import Arbiter, ArbiterMissingError, ArbiterUnavailableError
from broker_stub.election.arbiter.urls import open_arbiter

__all__ = ["Arbiter", "ArbiterMissingError", "ArbiterUnavailableError", "open_arbiter"]
