"""Programs under test, one module for each API: a producer or a consumer that writes a history.

    python -m tests.brokers.programs.asyncio_api '{"role": "producer", "url": ..., "queue": ..., ...}'

The fields are those of ``task.Task``.  A program prints ``ready`` when its link is attached.  It ends with 0
after a line, or the end, of its standard input: a producer when each message has its outcome, a consumer at
once.  An exception that it does not expect ends it, with the traceback on standard error.
"""
