"""Reconnect storms: outages that hit many connections of a cluster together."""
