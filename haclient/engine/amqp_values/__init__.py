"""Values of AMQP: from Python (``encode``)."""
