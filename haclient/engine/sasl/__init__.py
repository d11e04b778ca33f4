"""SASL, below AMQP: who the client is, before proton sees a byte.

* ``client``      the client's side of one negotiation
* ``server``      the server's side
* ``mechanisms``  the mechanisms of a client: their order of choice, and their messages
* ``mechanism``, ``kerberos``  what all of these are, and the one that needs a library and a KDC
* ``server_mechanisms``, ``users``  a server's part of each mechanism, and what it keeps of a password
* ``channel_binding``  SCRAM's proof of the server's certificate
* ``frames``      the SASL frames of both sides
* ``cyrus``       proton's own SASL, for a drop-in application that listens
"""
