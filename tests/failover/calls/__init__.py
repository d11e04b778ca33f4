"""Thousands of calls that are cancelled and time out while their broker is cut, paused and slow.

``plan``      the calls and faults of a run: a pure function of bytes, which Hypothesis draws
``book``      the reports of the calls, and the cases that occurred, by name
``asyncio_calls``, ``blocking_calls``   the same plan over each API, and the directed cases
``judge``     compares the broker's messages, after all connections are closed, with the reports
"""
