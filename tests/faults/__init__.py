"""Faults, clients that record their calls, and a checker of the records: see ``docs/faults.md``."""
