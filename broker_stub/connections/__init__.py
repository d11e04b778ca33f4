"""One client connection: its incoming and outgoing links, and their terminus."""
