"""Shared parts of both APIs around a receiver: unsubscribing, draining, and checks of arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeVar

from haclient.api.bases import BaseDelivery
from haclient.core.connection import ConnectionCore, State
from haclient.core.delivery import DeliveryCore, confirm_all
from haclient.core.receiver import ReceiverCore
from haclient.error_catalog.arguments import check_flag, check_text, check_type, check_whole, wrong_type
from haclient.error_catalog.base import quoted
from haclient.errors import (
    ConfirmTimeout,
    DeadlineExceeded,
    DrainTimeout,
    LinkTimeout,
    ReceiveTimeout,
    StaleDelivery,
    another,
)
from haclient.outcome import ACCEPTED, RELEASED, Outcome, OutcomeState

D = TypeVar("D", bound=BaseDelivery)

# The treatment of a delivery whose block raised.
OnError = Literal["release", "modify", "reject"]
_ON_ERROR: Mapping[str, Outcome] = MappingProxyType(
    {
        "release": RELEASED,
        "modify": Outcome(OutcomeState.MODIFIED, delivery_failed=True),
        "reject": Outcome(OutcomeState.REJECTED),
    }
)


async def unsubscribe(
    connection: ConnectionCore, name: str, topic: str | None, seconds: float | None
) -> None:
    """Remove a durable subscription; see ``Connection.unsubscribe``.

    :raises LinkTimeout: if it takes longer.
    """
    removal = connection.links.unsubscribe(name, topic)
    try:
        async with asyncio.timeout(seconds):
            await removal.wait()
    except DeadlineExceeded:
        raise
    except TimeoutError:
        if connection.state is State.CONNECTED and removal.refusal is not None:
            raise another(removal.refusal) from None
        because = "" if connection.state is State.CONNECTED else ": the connection has no primary"
        raise LinkTimeout(
            f"the subscription {quoted(name)} was not removed within {seconds} s{because}"
        ) from None
    finally:
        removal.close()


async def drain(core: ReceiverCore, seconds: float | None) -> None:
    """Take the credit of a receiver back; see ``Receiver.drain``.

    :raises DrainTimeout: if it takes longer.
    """
    try:
        async with asyncio.timeout(seconds):
            await core.drain()
    except DeadlineExceeded:
        raise
    except TimeoutError:
        raise DrainTimeout(f"the primary did not answer the drain within {seconds} s") from None


async def wait_confirmed(core: DeliveryCore, seconds: float | None) -> None:
    """Accept a delivery, and wait until the primary has confirmed that; see ``Delivery.accept``.

    :raises ConfirmTimeout: if it takes longer.
    """
    confirmation = core.confirm()
    try:
        async with asyncio.timeout(seconds):
            await confirmation.wait()
    except (DeadlineExceeded, ConfirmTimeout):
        raise
    except TimeoutError:
        raise _not_confirmed(seconds) from None


async def confirm_many(
    core: ReceiverCore, deliveries: Sequence[DeliveryCore], seconds: float | None
) -> set[DeliveryCore]:
    """Accept several deliveries, and wait until the result of each is known.

    :returns: the confirmed deliveries.
    :raises ConfirmTimeout: if it takes longer.
    """
    waited_for = confirm_all(core, deliveries)
    try:
        async with asyncio.timeout(seconds):
            for _, confirmation in waited_for:
                if confirmation is not None:
                    with contextlib.suppress(StaleDelivery):
                        await confirmation.wait()
    except (DeadlineExceeded, ConfirmTimeout):
        raise
    except TimeoutError:
        raise _not_confirmed(seconds) from None
    return {each for each, confirmation in waited_for if confirmation is not None and not confirmation.stale}


def _not_confirmed(seconds: float | None) -> ConfirmTimeout:
    return ConfirmTimeout(f"the primary did not confirm the accept within {seconds} s")


async def arrived(core: ReceiverCore, needed: int, seconds: float | None) -> bool:
    """Wait until the inbox holds ``needed`` messages; without time only check, and grant no credit.

    :returns: ``False`` if the time ended first.
    :raises HaclientError: if the receiver is closed.
    """
    if seconds is not None and seconds <= 0:
        await asyncio.sleep(0)  # for a caller that only polls, or no message would ever arrive
        if len(core.inbox) < needed:
            core.check_open()
        return len(core.inbox) >= needed
    try:
        async with asyncio.timeout(seconds):
            await core.wait_messages(needed)
    except DeadlineExceeded:
        raise
    except TimeoutError:
        return False
    return True


def check_counts(core: ReceiverCore, max_count: int, min_count: int) -> None:
    """Check the number of messages that a call asks for.

    :raises TypeError: if a count is no whole number.
    :raises ValueError: if a count is below 1, or can never be reached.
    """
    check_whole("max_count", max_count)
    check_whole("min_count", min_count)
    if not 1 <= min_count <= max_count:
        raise ValueError(f"min_count is 1 or more and at most max_count, not {min_count} of {max_count}")
    if 0 < core.credit < min_count:
        raise ValueError(f"min_count is at most the receiver's credit of {core.credit}, not {min_count}")


def listed(deliveries: Iterable[D]) -> list[D]:
    """Return the deliveries passed to a call, as a list.

    :raises TypeError: if they cannot be iterated over.
    """
    check_type("deliveries", deliveries, Iterable)
    return list(deliveries)


def cores_of(deliveries: Sequence[BaseDelivery]) -> list[DeliveryCore]:
    """Return the cores of the deliveries passed to a call.

    :raises TypeError: for any other object.
    """
    try:
        return [each._core for each in deliveries]
    except AttributeError:
        other = next(each for each in deliveries if not hasattr(each, "_core"))
        raise wrong_type("deliveries", "deliveries of this receiver", other) from None


def rejected(condition: str | None, description: str | None) -> Outcome:
    """Return the outcome *rejected*.

    :raises TypeError, ValueError: for an invalid text.
    """
    check_text("condition", condition, optional=True)
    check_text("description", description, optional=True)
    return Outcome(OutcomeState.REJECTED, condition, description)


def modified(*, delivery_failed: bool, undeliverable_here: bool) -> Outcome:
    """Return the outcome *modified*.

    :raises TypeError: if an argument is no flag.
    """
    check_flag("delivery_failed", delivery_failed)
    check_flag("undeliverable_here", undeliverable_here)
    return Outcome(
        OutcomeState.MODIFIED, delivery_failed=delivery_failed, undeliverable_here=undeliverable_here
    )


def failed_outcome(on_error: OnError) -> Outcome:
    """Return the outcome for a ``Delivery.processing`` block that raises.

    :raises TypeError, ValueError: for an invalid ``on_error``.
    """
    check_type("on_error", on_error, str)
    if on_error not in _ON_ERROR:
        raise ValueError(f"on_error: it is 'release', 'modify' or 'reject', not {quoted(on_error)}")
    return _ON_ERROR[on_error]


def block_outcome(core: DeliveryCore, error: BaseException | None, failed: Outcome) -> Outcome | None:
    """Return the outcome at the end of a delivery's block; ``None`` if it was settled inside.

    :param error: the exception of the block.
    :param failed: the outcome after an ``Exception``.  After a cancellation or an interrupt the message is
        released: neither is about the message.
    """
    if core.settled:
        return None
    if error is None:
        return ACCEPTED
    return failed if isinstance(error, Exception) else RELEASED


def nothing_arrived(seconds: float | None) -> ReceiveTimeout:
    """Return the error of a call that got no message in time."""
    return ReceiveTimeout(f"no message arrived within {seconds} s")


def take(core: ReceiverCore, count: int) -> list[DeliveryCore]:
    """Take at most ``count`` messages from the inbox, on any thread."""
    taken: list[DeliveryCore] = []
    while len(taken) < count:
        try:
            taken.append(core.inbox.popleft())
        except IndexError:  # also if another thread took it
            break
    return taken


def live(core: ReceiverCore, deliveries: Iterable[DeliveryCore]) -> list[DeliveryCore]:
    """Return the deliveries of the present session; the primary delivers the others again."""
    return [each for each in deliveries if each.session_number == core.session_number]
