"""Where the primary is, and what to do next to reach it.  Only ``resolve`` does I/O.

Facts: ``endpoint`` (an address), ``evidence`` (what was observed), ``policy`` (every number).
What the user wrote: ``cluster_url`` (the URL), ``options`` (``?name=value``), and what they parse with.
What is known: ``resolve`` (names to addresses, by DNS), ``topology`` (evidence in, a new topology out).
What to do: ``search`` (the state machine of one episode), ``decision`` (what it answers).
What ``search`` remembers: ``flights`` (its attempts), ``rounds`` (this pass over the list),
``redirects`` (where one may lead), ``appointments`` (where and when a server said to come),
``limits`` (when to give up), ``backoff`` (how long to wait) and its ``strategies``.
"""
