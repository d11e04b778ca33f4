"""Thousands of calls that are cancelled and time out while their broker is cut, paused and slow.

``plan``      what a run does: a pure function of bytes, which Hypothesis draws
``book``      what the calls reported, and what happened to them, by name
``asyncio_calls``, ``blocking_calls``   the same plan over each API, and what chance does not bring
``judge``     what the broker has after all connections are closed, against what was reported
"""
