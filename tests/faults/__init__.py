"""Faults, clients that write down what they saw, and a judge who reads it: see ``docs/faults.md``."""
