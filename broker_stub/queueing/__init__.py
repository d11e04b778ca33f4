"""Messages, queues and exchanges.  No I/O."""
