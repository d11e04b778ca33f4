"""Reads the fields of a peer's Open, Attach, Close, Detach and outcomes, of any type.

proton decodes these fields when they are read.  It raises if Python cannot hold the value: a map with a list
as a key, text that is not UTF-8, a capability that is not a symbol.  This module treats such a field as
absent.  In the texts of an error, bytes that are not UTF-8 are escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import proton
from cproton_ffi import ffi, lib

from haclient.outcome import Outcome, OutcomeState

# Names that this project and other brokers send, as one string shared by all connections that keep them.
# Neither these nor names that a peer invents use ``sys.intern``: CPython 3.12.1 never frees interned strings.
_KNOWN = {
    name: name
    for name in (
        "product",
        "version",
        "platform",
        "failover-server-list",
        "haclient:address",
        "haclient:client-id",
        "haclient:cluster",
        "haclient:connection",
        "haclient:connections",
        "haclient:generation",
        "haclient:ids-live-with-messages",
        "haclient:member",
        "haclient:role",
        "haclient:setup-rate",
    )
}
_OUTCOMES = {state.value: state for state in OutcomeState}
# The errors that proton raises for a value that Python cannot hold; bad UTF-8 is a ValueError.
_UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError)


def properties(endpoint: proton.Connection | proton.Link) -> dict[str, Any]:
    """Return the properties of an Open or an Attach, by plain string."""
    found = _read(lambda: endpoint.remote_properties)
    if not isinstance(found, Mapping):
        return {}
    return {_KNOWN.get(name := str(key), name): value for key, value in found.items()}


def container_id(connection: proton.Connection) -> str | None:
    """Return the container id of the peer's Open; ``None`` if it is empty."""
    found = _read(lambda: connection.remote_container)
    return str(found) if found else None


def offered_capabilities(connection: proton.Connection) -> frozenset[str]:
    """Return the capabilities that the peer's Open offers."""
    found = _read(lambda: connection.remote_offered_capabilities)
    return frozenset(map(str, found)) if isinstance(found, Iterable) else frozenset()


def desired_capabilities(connection: proton.Connection) -> frozenset[str]:
    """Return the capabilities that the peer's Open desires."""
    found = _read(lambda: connection.remote_desired_capabilities)
    return frozenset(map(str, found)) if isinstance(found, Iterable) else frozenset()


def link_name(link: Any) -> bytes:
    """Return the name of a link; if the peer chose it, any bytes, or none."""
    name = lib.pn_link_name(link._pn)
    return ffi.string(name) if name else b""


def node_properties(terminus: proton.Terminus) -> dict[str, Any]:
    """Return the dynamic node properties of a terminus, by plain string."""
    found = _read(lambda: _value(terminus.properties))
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def has_filter(source: proton.Terminus) -> bool:
    """Return whether a source has a filter, readable or not."""
    data = source.filter
    data.rewind()
    kind = data.next()
    return (
        kind is not None and kind != proton.Data.NULL and not (kind == proton.Data.MAP and not data.get_map())
    )


def filters(source: proton.Terminus) -> dict[str, Any]:
    """Return the filters of a source, by plain string."""
    found = _read(lambda: _value(source.filter))
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def capabilities(terminus: proton.Terminus) -> frozenset[str]:
    """Return the capabilities of a terminus."""
    return _symbols(lambda: _value(terminus.capabilities))


def outcomes(source: proton.Terminus) -> frozenset[str]:
    """Return the outcomes that a source names."""
    return _symbols(lambda: _value(source.outcomes))


def _symbols(read: Callable[[], Any]) -> frozenset[str]:
    """Return one symbol, or several."""
    found = _read(read)
    several = found.elements if isinstance(found, proton.Array) else [found]
    return frozenset(str(symbol) for symbol in several if symbol is not None)


def text(pointer: Any) -> str | None:
    """Return a text in C.  Bytes that are not UTF-8 are escaped; proton would raise."""
    return None if pointer == ffi.NULL else str(ffi.string(pointer), errors="backslashreplace")


def condition(endpoint: proton.Endpoint) -> proton.Condition | None:
    """Return the error of a Close, an End or a Detach."""
    return _condition(endpoint._get_remote_cond_impl())


def _condition(raw: Any) -> proton.Condition | None:
    if not lib.pn_condition_is_set(raw):
        return None
    name, description = text(lib.pn_condition_get_name(raw)), text(lib.pn_condition_get_description(raw))
    info = _read(lambda: _value(proton.Data(lib.pn_condition_info(raw))))
    return proton.Condition(name or "", description, info)


def transport_condition(transport: proton.Transport) -> proton.Condition | None:
    """Return the error of a transport, and replace it if it quotes bytes of the peer that are not UTF-8.

    Such bytes are escaped, in proton's object too.
    """
    try:
        return transport.condition
    except UnicodeDecodeError:
        found = _condition(lib.pn_transport_condition(transport._impl))
        assert found is not None
        transport.condition = found  # handlers of applications read it too
        return found


def outcome(delivery: Any, state: int) -> Outcome | None:
    """Return an outcome with its fields; ``None`` for a state that is not an outcome.

    :param delivery: proton's pointer.
    """
    if state not in _OUTCOMES:
        return None
    remote = proton.Delivery(delivery).remote
    rejected = _OUTCOMES[state] is OutcomeState.REJECTED
    modified = _OUTCOMES[state] is OutcomeState.MODIFIED
    condition = _condition(lib.pn_disposition_condition(remote._impl)) if rejected else None
    return Outcome(
        _OUTCOMES[state],
        condition=condition.name if condition else None,
        description=condition.description if condition else None,
        delivery_failed=bool(remote.failed),
        undeliverable_here=bool(remote.undeliverable),
        annotations=_encoded(lib.pn_disposition_annotations(remote._impl)) if modified else b"",
    )


def _encoded(data: Any) -> bytes:
    """Return the encoded content of proton's C data; empty if there is none."""
    size = lib.pn_data_encoded_size(data)
    if size <= 0:
        return b""
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    return bytes(ffi.buffer(buffer, written)) if written > 0 else b""


def _value(data: proton.Data) -> Any:
    data.rewind()
    return data.get_object() if data.next() else None


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except _UNREADABLE:
        return None
