"""OpenTelemetry's resource attributes of this process, by which a fleet is grouped.

Rules
-----
1. Only the attributes of ``schema.RESOURCE`` are written, so a line has a bounded number of them, and none
   that was not asked for.  A value has at most ``LONGEST`` characters; the rest is cut off.
2. Sources of an attribute, in order of precedence: the settings, the option ``telemetry_attributes``,
   ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``.  An empty value counts as absent.
3. A variable with an error is ignored as a whole, with a warning.
4. ``deployment.environment`` is the former name of ``deployment.environment.name``.

Sources: OpenTelemetry specification, resource SDK and environment variables; semantic conventions, resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from haclient.cluster_url.attribute_list import parse_attributes
from haclient.printable.log import get_logger
from haclient.telemetry.schema import RESOURCE

logger = get_logger("haclient")

ATTRIBUTES_VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"
SERVICE_VARIABLE = "OTEL_SERVICE_NAME"
SERVICE, INSTANCE, CLIENT_VERSION = "service.name", "service.instance.id", "haclient.version"
LONGEST = 256
"""Characters of a value; the name of a Kubernetes object has at most 253 (RFC 1123)."""

# The client always writes its own version.
_KNOWN = {key.name for key in RESOURCE if key.name != CLIENT_VERSION}
_FORMER = {"deployment.environment": "deployment.environment.name"}
_COLUMNS = {key.name: key.column for key in RESOURCE}


class Attributes(Mapping[str, str]):
    """Immutable, hashable attributes by their OpenTelemetry names.

    :raises ValueError: names an attribute whose value is not text.
    """

    __slots__ = ("_pairs",)

    def __init__(self, given: Mapping[str, object]) -> None:
        known = {_FORMER[name]: value for name, value in given.items() if name in _FORMER}
        known |= {name: value for name, value in given.items() if name in _KNOWN}
        for name, value in known.items():
            if not isinstance(value, str):
                raise ValueError(f"attribute {name!r}: {type(value).__name__} is not text")  # noqa: TRY004
        self._pairs = {name: _clean(str(known[name])) for name in sorted(known) if known[name]}

    def __getitem__(self, name: str) -> str:
        return self._pairs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __hash__(self) -> int:
        return hash(tuple(self._pairs.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self._pairs == other._pairs

    def __repr__(self) -> str:
        return f"Attributes({self._pairs!r})"

    def over(self, others: Mapping[str, str]) -> Attributes:
        """Return these attributes, and any of ``others`` that are not among them."""
        return Attributes({**others, **self._pairs})

    def without(self, name: str) -> Attributes:
        """Return these attributes without one."""
        return Attributes({each: value for each, value in self._pairs.items() if each != name})

    def columns(self) -> dict[str, str]:
        """Return the values by their columns."""
        return {_COLUMNS[name]: value for name, value in self._pairs.items()}


def from_environment(environ: Mapping[str, str]) -> Attributes:
    """Return the attributes that the variables define."""
    found = _from_variable(environ.get(ATTRIBUTES_VARIABLE, ""))
    service = environ.get(SERVICE_VARIABLE)
    return Attributes({SERVICE: service}).over(found) if service else found


@lru_cache(maxsize=8)  # so that a process with many factories warns once
def _from_variable(text: str) -> Attributes:
    try:
        return Attributes(parse_attributes(text))
    except ValueError as error:
        logger.warning("%s is ignored as a whole: %s", ATTRIBUTES_VARIABLE, error)
        return Attributes({})


def _clean(text: str) -> str:
    """Return the text cut to ``LONGEST``, without lone surrogates, as in a variable that is not UTF-8."""
    return text[:LONGEST].encode("utf-8", "replace").decode()
