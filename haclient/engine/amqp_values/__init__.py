"""AMQP values and messages: encoding, decoding, and steps over encoded bytes."""
