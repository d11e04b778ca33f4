"""Handling of links that a peer refuses for a while, and of links that end their connection.

* ``refusals``   final refusals, and how long the client retries the others
* ``retries``    waits, and attaches again
* ``suspects``   search for the link that ends its connection again and again
* ``answers``    ends a session whose peer answers no Attach
* ``streams``    position in a stream where a receiver is attached again
* ``queue``      attaches the links of a session, one by one while searching for a suspect
"""

from __future__ import annotations
