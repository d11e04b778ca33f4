"""SASL, below AMQP: who the client is, before proton sees a byte.

* ``client``      the client's side of one negotiation
* ``server``      the server's side
* ``mechanisms``  the mechanisms of a client: their order of choice, and their messages
* ``server_mechanisms``, ``users``  a server's part of each mechanism, and what it keeps of a password
* ``frames``      the SASL frames of both sides
* ``reporting``   proton's transport as handlers see it, with a log-in that proton has not seen
* ``cyrus``       proton's own SASL: a client's Kerberos, a client behind proton's TLS, a drop-in's listener
"""
