"""How a settled message gets onto the backups; docs/replication.md is its theory.

* ``guard``     holds a transfer until everyone who must have the message, has it
* ``leading``, ``replica``, ``browser``  the primary's side: all, one, one queue of one
* ``backup``, ``copy``  the backup's side: following, and applying what comes
* ``wire``      the events between them
"""

from __future__ import annotations
