"""Another site follows: events of queues, and what carries them out; docs/sites.md is the theory.

* ``modes``, ``marks``, ``event``  the words: what a queue has, what it remembers, what is sent
* ``source``, ``agreeing``, ``copied``  the source: its primary, a new one, its backups
* ``applying``, ``link``  the other side: the ``replication`` exchange, and how it gets its events
* ``way``, ``password_file``  where a link's source is, and who it is there; no secret is stored
* ``odd``  events that are not as they should be, told without a flood
* ``site``  all of it in one member
"""

from __future__ import annotations
