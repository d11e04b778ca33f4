"""haclient beside the policies of other clients, in virtual time: one storm, or a grid of many.

``presets`` has the policies, ``cells`` lists the storms of the grid, ``bars`` judges one of them, ``run``
computes them with all processors and keeps the results, ``report`` and ``picture`` show them.
"""
