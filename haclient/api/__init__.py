"""Parts of the two APIs: senders, receivers and deliveries, and the futures that ``submit`` returns."""
