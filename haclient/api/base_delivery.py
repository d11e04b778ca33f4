"""What a delivery says of itself, the same in both APIs; how it is settled is theirs."""

from __future__ import annotations

from typing import Any

import proton

from haclient.api.pickling import not_picklable
from haclient.core.delivery import DeliveryCore


class BaseDelivery:
    """One received message."""

    __slots__ = ("_core",)

    __reduce__ = not_picklable

    _core: DeliveryCore

    @property
    def message(self) -> proton.Message:
        """The message without its duplicate-detection id, so that it can be sent on."""
        return self._core.message

    @property
    def body(self) -> Any:
        """The body of the message, whatever its sender put there; ``Any`` for type checkers."""
        return self._core.message.body

    @property
    def duplicate_id(self) -> Any:
        """The duplicate-detection id that it was sent with; ``None`` for one that haclient made."""
        return self._core.duplicate_id

    @property
    def data(self) -> bytes:
        """The message as received, encoded."""
        return self._core.data

    @property
    def settled(self) -> bool:
        """Whether it was settled here."""
        return self._core.settled
