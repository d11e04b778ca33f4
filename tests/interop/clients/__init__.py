"""Programs on other clients of AMQP 1.0, and what runs them through failovers of the pair."""
