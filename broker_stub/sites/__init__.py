"""Asynchronous replication between two sites; docs/sites.md is its theory.

* ``modes``, ``marks``, ``event``  which events a queue has, what it remembers, the events themselves
* ``outbound``, ``reconcile``, ``backup_state``  the source: its primary, a new primary, its backups
* ``inbound``, ``site_link``  the other side: the ``replication`` exchange, and how it gets its events
* ``source_config``, ``password_file``  where a link's source is, and the link's user there
* ``anomalies``  reports of events that are not as they should be
* ``site``  all of it in one member
"""

from __future__ import annotations
