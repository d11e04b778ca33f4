"""The common base of all errors, and the meaning of each: see ``base`` and ``entries``."""
