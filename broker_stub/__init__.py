"""A reference AMQP 1.0 broker: members of an active/passive pair, and who manages them.

Where to look:

* ``sections``  what can be told of an encoded message; ``messages``, ``queues``, ``dedup``
  what happens to it; ``addresses`` which queue it goes to
  (all pure)
* ``membership``  the roles of a member as a table (pure); ``address`` where a member is
* ``sessions``  one client connection; ``producers`` and ``subscriptions`` its links
* ``access``  who may do what; ``management`` the ``$management`` node; ``admin`` its client
* ``broker``  the member itself
* ``process``, ``member_process``  a member as a process, from inside and from outside
* ``manager``, ``pair_state``  who runs, who is primary, who knows it
* ``cli``  the commands
"""

from __future__ import annotations
