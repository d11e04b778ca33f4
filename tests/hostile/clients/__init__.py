"""Randomly hostile clients, for a member or a pair: ``python -m tests.hostile.clients OPTIONS``.

``acts``     the actions of one client, over its own connections
``process``  a process in which several clients act continuously
``honest``   a concurrent producer and consumer, which must not be affected
``pair``     the pair as processes, under observation
"""
