"""Parts shared by the programs ``haclient`` and ``broker-stub``: groups, help, signals."""
