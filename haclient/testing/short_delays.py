"""Short delays for an application's tests, wherever the application makes its factories.

    with fast_failover():
        application.start()

Rules
-----
* A delay becomes the shorter of ``SHORT`` and the configured or default value.
* Options that limit how long the client tries stay unchanged, unless given: ``deadline``,
  ``startup_deadline``, ``refusal_timeout``, ``max_attempts``, ``send_timeout``, ``call_timeout``.  Shorter
  ones would change the results that the application sees.
* It applies only to factories that this process makes inside the context, in any thread.  Contexts in two
  threads must not overlap: each would undo the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from unittest import mock

from haclient.cluster_url.options import Options, with_overrides
from haclient.factory import factory_core

SHORT: Mapping[str, float] = MappingProxyType(
    {
        "stagger": 0.05,
        # Other members are dialled meanwhile; a member on a busy machine may need some of it.
        "attempt_timeout": 2.0,
        "stable_after": 0.5,
        "backoff_base": 0.01,
        "backoff_max": 0.1,
        "max_retry_after": 0.5,
        "park_timeout": 1.0,
        # A process that gets no CPU time for this long is regarded as dead.
        "heartbeat": 1.0,
        "dns_timeout": 1.0,
        "close_timeout": 0.2,
    }
)
"""Upper limits of the delays, in seconds."""

_PATCHED = "with_overrides"


@contextmanager
def fast_failover(**options: object) -> Iterator[None]:
    """Shorten every delay of the factories that are made while the body runs.

    :param options: URL options by name; these values override the application's.
    :raises ClusterURLError: for an option that does not exist, or a bad value.
    """
    with_overrides(Options(), **options)

    def shortened(given: Options) -> Options:
        shorter = {name: min(getattr(given, name), longest) for name, longest in SHORT.items()}
        return with_overrides(given, **{**shorter, **options})

    with changed_options(shortened):
        yield


@contextmanager
def changed_options(change: Callable[[Options], Options]) -> Iterator[None]:
    """Change the options of each factory that is made while the body runs."""
    original: Callable[..., Options] = vars(factory_core)[_PATCHED]

    def changed(options: Options, **overrides: object) -> Options:
        return change(original(options, **overrides))

    with mock.patch.object(factory_core, _PATCHED, changed):
        yield
