"""The values of received messages, whose binary ones may be kept longer than the message.

``proton.Data`` gives them as views into the message's memory, wherever they are (in a map, as a
descriptor): using one after the message is gone crashes the process, and one as the key of a map is a
``ValueError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import proton
from cproton_ffi import lib

SECTIONS = (
    lib.pn_message_instructions,
    lib.pn_message_annotations,
    lib.pn_message_properties,
    lib.pn_message_body,
)
"""Where proton keeps what follows header and properties."""

_Readers: TypeAlias = dict[Any, Callable[[proton.Data], Any]]
_AS_BYTES: _Readers = {
    **proton.Data.get_mappings,
    proton.Data.BINARY: lambda data: bytes(data.get_binary()),
}
_AS_VIEWS: _Readers = {**_AS_BYTES, proton.Data.BINARY: lambda data: memoryview(bytes(data.get_binary()))}


class Section(proton.Data):
    """A section whose binary values are ``bytes``."""

    get_mappings = _AS_BYTES


class _SectionOfViews(proton.Data):
    """A section whose binary values are views as proton's are, each of a copy."""

    get_mappings = _AS_VIEWS


def read_sections(message: proton.Message, kind: type[proton.Data]) -> None:
    """Read what proton has decoded, as ``Message._post_decode`` does."""
    values = []
    for section in SECTIONS:
        data = kind(section(message._msg))
        values.append(data.get_object() if data.next() else None)
    message.instructions, message.annotations, message.properties, message.body = values


class MessageOfViews(proton.Message):
    """proton's message, but that its binary values may be kept longer, and be the keys of a map."""

    def _post_decode(self) -> None:
        read_sections(self, _SectionOfViews)
