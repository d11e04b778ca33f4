"""Peers that are hostile at random: a broker against every client, and a client against the pair.

    python -m tests.hostile broker --minutes 10 --seed 7
    python -m tests.hostile client --minutes 10 --seed 7
    make hostile MINUTES=10 SEED=7

``broker``      a broker that speaks AMQP and means no good
``callers``     what is run against it: asyncio, blocking, the drop-in, the commands; a process each
``clients``     clients that mean no good, for the pair
``messages``    messages that are extreme, or that nobody can read; for both
``processes``   what a process has used, and what the kernel says about it
"""
