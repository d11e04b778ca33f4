"""SASL, below AMQP: who the client is, before proton sees a byte.

* ``client``      the client's side of one negotiation
* ``server``      the server's side, for clients with names
* ``mechanisms``  the mechanisms of a client: their order of choice, and their messages
* ``frames``      the SASL frames of both sides
* ``reporting``   proton's transport as handlers see it, with a log-in that proton has not seen
* ``cyrus``       Cyrus SASL: a server's users, a client's Kerberos; a client behind proton's TLS
"""
