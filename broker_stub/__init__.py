"""A reference AMQP 1.0 broker: members of an active/passive pair, and who manages them.

Where to look:

* ``sections``  what can be told of an encoded message; ``messages``, ``queues``, ``dedup``
  what happens to it; ``addresses`` which queue it goes to
  (all pure)
* ``membership``  the roles of a member as a table (pure); ``address`` where a member is
* ``sessions``  one client connection; ``producers`` and ``subscriptions`` its links, ``termini``
  what an Attach says
* ``entrance``  who is let in, and when; ``admission`` and ``accept_rate`` its slots and their
  rate, ``handshakes`` who has not got that far (all pure); ``parking`` who waits for a turn,
  ``calibration`` how fast set-ups are, ``listener`` the sockets
* ``access``  who may do what; ``management`` the ``$management`` node; ``admin`` its client
* ``broker``  the member itself
* ``process``, ``member_process``  a member as a process, from inside and from outside
* ``manager``, ``pair_state``  who runs, who is primary, who knows it
* ``cli``  the commands

Groundwork for replication, which no member uses yet:

* ``generation``, ``generation_steps``  who may be primary, and in which order it is written (pure)
* ``arbiter``  the record that decides: a directory or ZooKeeper
* ``store``    what a member keeps from one life to the next
"""

from __future__ import annotations
