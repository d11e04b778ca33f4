"""Attaches links that a peer refuses for a while, and finds those that end their connection.

* ``refusals``   which refusals are final, and for how long the others are retried
* ``retries``    waits, and attaches again
* ``suspects``   which link ends its connection again and again
* ``answers``    ends a session that answers none of them
* ``streams``    where in a stream a receiver is attached again
* ``queue``      attaches the links of a session, one by one where that is to be found out
"""

from __future__ import annotations
