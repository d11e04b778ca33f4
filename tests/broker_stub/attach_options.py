"""Options of proton's own client for an Attach, and readers of the answer."""

from __future__ import annotations

from typing import Any

from proton import Array, Data, Terminus, symbol
from proton.reactor import LinkOption

UNDESCRIBED: Any = None


class Asks(LinkOption):
    """Writes into the remote terminus before the Attach."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def apply(self, link: Any) -> None:
        terminus = link.source if link.is_receiver else link.target
        for name, value in self.fields.items():
            if name in ("capabilities", "outcomes", "filter", "properties"):
                getattr(terminus, name).put_object(value)
            else:
                setattr(terminus, name, value)


DURABLE = Asks(durability=Terminus.DELIVERIES, expiry_policy=Terminus.EXPIRE_NEVER)


class Filter(LinkOption):
    """Sets the filters of a source, by name."""

    def __init__(self, filters: dict[str, Any]) -> None:
        self.filters = filters

    def apply(self, link: Any) -> None:
        link.source.filter.put_object({symbol(name): each for name, each in self.filters.items()})


def value(data: Data) -> Any:
    """Return a field of an answer, ``None`` if it is absent."""
    data.rewind()
    return data.get_object() if data.next() else None


def symbols(*names: str) -> Array:
    return Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, names))
