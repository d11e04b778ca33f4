"""Client connections, their incoming and outgoing links, and the termini of these."""
