"""What every error has in common, and what each one means: see ``base`` and ``entries``."""
