"""Where the primary is, and what to do next to reach it.  No I/O and no clock.

Facts: ``evidence`` (what was observed) and ``topology`` (evidence in, a new topology out).
Decisions: ``search`` (the state machine of one episode), ``states`` (its table of moves), ``winner`` (which
usable session becomes the connection) and ``decision`` (its answers).
What ``search`` remembers: ``pending_attempts`` (its attempts), ``rounds`` (this pass over the list),
``redirects`` (which targets it may follow), ``reservation`` (where and when a server expects it),
``limits`` (when to give up), ``candidates`` (what may be dialled).  ``polling`` says which of these is next,
and when.
"""
