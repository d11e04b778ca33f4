"""Many storms at once: every kind, size and length of outage, our default and all presets, judged by bars.

``cells`` lists the storms, ``bars`` judges one of them, ``run`` computes them with all processors and keeps
what it has computed, ``report`` and ``picture`` show it, ``brokers`` has the setup rates of brokers that were
measured.
"""
