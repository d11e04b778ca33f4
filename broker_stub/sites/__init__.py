"""Another site follows: events of queues, and what carries them out; docs/sites.md is the theory.

* ``modes``, ``marks``, ``event``  the words: what a queue has, what it remembers, what is sent
* ``source``, ``agreeing``, ``copied``  the source: its primary, a new one, its backups
* ``applying``, ``link``  the other side: the ``replication`` exchange, and how it gets its events
* ``site``  all of it in one member
"""

from __future__ import annotations
