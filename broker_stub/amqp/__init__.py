"""Facts of AMQP without state: how messages are formatted, and the names of conditions."""
