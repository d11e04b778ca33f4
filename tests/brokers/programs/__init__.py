"""Programs under test, one module for each API: a producer or a consumer that writes a history.

    python -m tests.brokers.programs.asyncio_api '{"role": "producer", "url": ..., "queue": ..., ...}'

The fields are listed in ``task.Task``. A program prints ``ready`` when its link is attached. A line or the
end of its standard input asks it to finish. A consumer then exits with 0 at once, a producer when each
message has its outcome. An unexpected exception ends it, with the traceback on standard error.
"""
