"""Bytes in, proton events out: one AMQP 1.0 connection over one asyncio transport.

* ``protocol``    the asyncio protocol around proton's sans-I/O engine, client and server side
* ``owner``       what an engine calls on its owner, and how a connection ended
* ``proton_objects``  proton's objects of one connection, made and released together
* ``link_table``  the links of a connection, and what the peer's Attach, Flow, Detach and End do to them
* ``links``       sender and receiver links of one connection: the hot path, in proton's C calls
* ``codec``       a message to bytes and back
* ``settings``    what one connection is opened with
* ``tls``, ``sasl``  transport security and authentication

Nothing here knows about clusters: an engine lives as long as its socket and is never reused.
"""

from __future__ import annotations
