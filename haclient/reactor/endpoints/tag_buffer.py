"""Makes proton's deliveries with tags that are strings.

``cproton.pn_delivery`` makes a C structure for each tag, which takes as long as the C call itself.

Source: AMQP 1.0 part 2, section 2.8.7 (a delivery tag has at most 32 bytes).
"""

from __future__ import annotations

from typing import Any

import cproton
from cproton_ffi import ffi, lib

_LONGEST = 32


class TagBuffer:
    """The memory for the tags of one sender.  proton copies each."""

    __slots__ = ("_memory", "_size", "_tag", "_tag_pointer")

    def __init__(self) -> None:
        self._tag_pointer: Any = None
        self._size = 0

    def delivery(self, link: Any, tag: Any) -> Any:
        """Return a new delivery of a link, both by proton's C pointers.

        :param tag: text or bytes.
        """
        if type(tag) is not str:
            return cproton.pn_delivery(link, tag)
        data = tag.encode()
        size = len(data)
        if size > _LONGEST:
            return cproton.pn_delivery(link, tag)
        if self._tag_pointer is None:
            self._allocate()
        if size != self._size:
            self._tag_pointer.size = self._size = size
        ffi.memmove(self._memory, data, size)
        return lib.pn_delivery(link, self._tag)

    def _allocate(self) -> None:
        self._memory = ffi.new("char[]", _LONGEST)
        self._tag_pointer = ffi.new("pn_delivery_tag_t *", {"size": 0, "start": self._memory})
        self._tag = self._tag_pointer[0]
