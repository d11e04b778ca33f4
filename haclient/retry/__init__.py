"""Delays and limits of a search: the policy, the backoff, and its strategies.  No I/O and no clock."""
