"""Reads and changes a connection's bytes outside proton."""
