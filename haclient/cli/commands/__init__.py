"""One file for each command of ``haclient``."""
