"""Runs several members on one machine, and keeps one of them primary."""
