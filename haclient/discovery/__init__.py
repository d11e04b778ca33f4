"""Find the primary, and decide the next step to reach it.  No I/O and no clock.

Facts:

* ``evidence``: the observations of a client.
* ``topology``: evidence in, a new topology out.

Decisions:

* ``search``: the state machine of one episode; ``states``: its table of moves.
* ``decision``: the results of a step; ``winner``: the usable session that becomes the connection.
* ``polling``: order and times of dials.

State of a search:

* ``pending_attempts``: its attempts; ``rounds``: this pass over the list.
* ``redirects``: the targets to follow; ``reservation``: the member and time that a server reserved.
* ``limits``: when to give up; ``candidates``: the endpoints that may be dialled.
"""
