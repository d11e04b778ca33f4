"""How a settled message gets onto the backups; docs/replication.md is its theory.

* ``replica_set``, ``replica``, ``queue_feed``  the primary's side: all replicas, one, one queue of one
* ``backup``, ``apply``  the backup's side: following, and applying what arrives
* ``wire``      the events between them
"""

from __future__ import annotations
