"""SASL, below AMQP: who the client is, before proton sees a byte.

* ``client``      the client's side of one negotiation, and which mechanism it chooses
* ``mechanisms``  what a client sends for each mechanism
* ``frames``      the SASL frames of both sides
* ``reporting``   proton's transport as handlers see it, with a log-in that proton has not seen
* ``cyrus``       Cyrus SASL: a server's users, a client's Kerberos; a client behind proton's TLS
"""
