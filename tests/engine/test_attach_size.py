"""The size that an Attach will have is known before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton
import pytest
from proton import symbol

from haclient.engine.links import Link
from haclient.engine.wire import attach_size
from haclient.engine.wire.attach_size import AttachTooLarge
from haclient.engine.wire.outgoing import OutgoingBytes
from tests.engine.pair import Pair, pair

ATTACH = b"\x00\x53\x12"


def largest_attach(output: bytes) -> int:
    """Return the size of the largest Attach among the written frames (part 2, section 2.3.1)."""
    sizes, position = [0], 0
    while position < len(output):
        size = int.from_bytes(output[position : position + 4], "big")
        if output[position + 8 : position + 11] == ATTACH:
            sizes.append(size)
        position += size
    return max(sizes)


def plain(_: Link) -> None:
    """Make a terminus with names only."""


def long_names(link: Link) -> None:
    link.endpoint.source.address = "s" * 300
    link.endpoint.target.address = "t" * 5000


def filters(link: Link) -> None:
    link.endpoint.source.filter.put_dict({symbol("f"): "x" * 700})
    link.endpoint.source.capabilities.put_object(symbol("topic"))
    link.endpoint.source.durability = proton.Terminus.DELIVERIES
    link.endpoint.source.expiry_policy = proton.Terminus.EXPIRE_NEVER
    link.endpoint.snd_settle_mode = proton.Link.SND_SETTLED


def properties(link: Link) -> None:
    link.endpoint.properties = {symbol("p"): "y" * 400}


def make(both: Pair, which: str, configure: Any) -> Link:
    engine, session = both.client.engine, both.client.session
    assert engine is not None
    assert session is not None
    link = getattr(engine, which)(session, "a name", both.client)
    configure(link)
    return link  # type: ignore[no-any-return]


@pytest.mark.parametrize("which", ["sender", "receiver"])
@pytest.mark.parametrize("configure", [plain, long_names, filters, properties])
async def test_it_is_what_goes_over_the_wire(
    monkeypatch: pytest.MonkeyPatch, which: str, configure: Any
) -> None:
    async with pair() as both:
        engine = both.client.engine
        assert engine is not None
        written, outgoing, take = bytearray(), engine._outgoing, OutgoingBytes.take

        def spy(of: OutgoingBytes, *more: Callable[[], object]) -> bytes | bytearray:
            output = take(of, *more)
            if of is outgoing:
                written.extend(output)
            return output

        monkeypatch.setattr(OutgoingBytes, "take", spy)
        link = make(both, which, configure)
        engine.attach(link)
        size = attach_size.attach_size(link.endpoint)
        await both.client.until(lambda: both.client.links_opened)
        assert largest_attach(bytes(written)) == size
        assert size <= attach_size._at_most(link.endpoint) or configure is properties


@pytest.mark.parametrize("configure", [plain, long_names, filters, properties])
async def test_one_byte_more_than_the_frame_is_too_large(configure: Any) -> None:
    async with pair() as both:
        link = make(both, "receiver", configure)
        size = attach_size.attach_size(link.endpoint)
        attach_size.check(link.endpoint, _Transport(size))
        attach_size.check(link.endpoint, _Transport(0))
        with pytest.raises(AttachTooLarge, match=f"{size} bytes, and the peer takes {size - 1} at most"):
            attach_size.check(link.endpoint, _Transport(size - 1))


class _Transport:
    def __init__(self, remote_max_frame_size: int) -> None:
        self.remote_max_frame_size = remote_max_frame_size
