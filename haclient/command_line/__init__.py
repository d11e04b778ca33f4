"""The parts that both programs share, ``haclient`` and ``broker-stub``: groups, help, signals."""
