"""Delivery of a queue's available messages: which consumer gets each one, and in which order."""
