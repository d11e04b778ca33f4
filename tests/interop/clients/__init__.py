"""Programs on other AMQP 1.0 clients, and the runner that takes them through failovers of the pair."""
