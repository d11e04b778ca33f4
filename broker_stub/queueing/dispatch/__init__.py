"""Hands the available messages of a queue to its consumers: which one, and in which order."""
