"""A random source for the factories that a test makes, so that the delays are the same in each run.

    with random_source(random.Random(1)):
        factory = haclient.ConnectionFactory(url)

A client draws its backoff and the order of SRV records from it.  It applies only to factories that this
process makes inside the context, in any thread.  Contexts in two threads must not overlap: each would undo
the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from haclient.error_catalog.arguments import check_type
from haclient.factory import factory_core

_PATCHED = "new_random"


@contextmanager
def random_source(rng: random.Random) -> Iterator[None]:
    """Make factories use this random source while the body runs.

    :raises TypeError: if it is not a ``random.Random``.
    """
    check_type("rng", rng, random.Random)

    def given() -> random.Random:
        return rng

    with mock.patch.object(factory_core, _PATCHED, given):
        yield
