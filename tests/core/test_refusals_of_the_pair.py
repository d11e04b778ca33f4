"""A member of our pair refuses as recorded, and the user sees the recorded error."""

from __future__ import annotations

from tests.brokers.application import attach, check, connect, received, refused, send
from tests.members import Members
from tests.peers.recorded_refusals import ADDRESS, Product, Step, refusal

FEW = 20_000
"""Bytes that about twenty messages fill."""
MANY = 60


async def test_users_and_addresses_that_it_does_not_know(members: Members) -> None:
    member = members.start(
        "strict", role="primary", users={"joe": "secret"}, anonymous=False, **{"auto-create": False}
    )
    for situation, who in (("wrong password", "joe:wrong@"), ("no credentials", "")):
        seen = await refused(connect(f"amqp://{who}{member.address}"))
        check(refusal(Product.PAIR, situation), seen, member.url)
    url = f"amqp://joe:secret@{member.address}"
    for step, receive in ((Step.SENDER, False), (Step.RECEIVER, True)):
        seen = await refused(attach(url, ADDRESS, receive=receive))
        check(refusal(Product.PAIR, "unknown address", step), seen, member.url)


async def test_more_messages_than_it_may_hold(members: Members) -> None:
    member = members.start("small", role="primary", **{"max-bytes": FEW, "credit-bytes": 5_000})
    url = f"amqp://{member.address}"
    seen = await refused(send(url, ADDRESS, MANY, timeout=1))
    check(refusal(Product.PAIR, "full store"), seen, member.url)
    assert 0 < await received(url, ADDRESS) < MANY
