"""Randomly hostile peers: a broker against every client, and clients against the pair.

    python -m tests.hostile broker --minutes 10 --seed 7
    python -m tests.hostile client --minutes 10 --seed 7
    make hostile MINUTES=10 SEED=7

``broker``      a hostile broker that speaks AMQP
``callers``     the programs run against it, one process each: asyncio, blocking, the drop-in, the commands
``clients``     hostile clients, for the pair
``messages``    extreme or unreadable messages; for both
``processes``   the resources that a process has used, from the kernel
"""
