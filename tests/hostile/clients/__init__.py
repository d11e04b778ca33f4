"""Clients that are hostile at random, for a member or a pair: ``python -m tests.hostile.clients OPTIONS``.

``acts``     what one of them does, over connections of its own
``process``  a process in which several of them act all the while
``honest``   the producer and the consumer beside them, who must notice nothing
``pair``     the pair as processes, watched
"""
