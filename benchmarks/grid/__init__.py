"""Compare haclient with the policies of other clients in virtual time: one storm, or a grid of many.

``presets`` has the policies, ``cells`` lists the storms of the grid, and ``bars`` judges one storm.  ``run``
computes all storms with all processors and keeps the results; ``report`` and ``picture`` show them.
"""
