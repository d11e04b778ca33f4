"""Settles a message only after the store and all required replicas have it: persister, restore, guard."""
