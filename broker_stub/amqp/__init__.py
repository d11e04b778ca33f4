"""Stateless parts of AMQP: message formats, and names of conditions."""
