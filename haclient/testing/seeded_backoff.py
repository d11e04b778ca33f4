"""A random source for the factories that a test makes, so that it draws the same delays each time.

    with random_source(random.Random(1)):
        factory = haclient.ConnectionFactory(url)

A client draws its backoff and the order of SRV records from it.  It holds for factories of this process that
are made inside the context, in any thread, and only for those; two contexts in two threads at once would
leave one another's.
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
    """Have the factories that are made while the body runs draw from this source.

    :raises TypeError: for anything else than a ``random.Random``.
    """
    check_type("rng", rng, random.Random)

    def given() -> random.Random:
        return rng

    with mock.patch.object(factory_core, _PATCHED, given):
        yield
