"""One client connection: its incoming and outgoing links, and what an Attach says."""
