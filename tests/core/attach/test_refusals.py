"""Which refusals of a link are final, and for how long the others are retried."""

from __future__ import annotations

import math

import proton
import pytest

from haclient.core.attach.refusals import closed_by_peer, retry_seconds
from haclient.errors import LinkClosed, LinkRefused

TIMEOUT = 120.0
# From AMQP 1.0 part 2, sections 2.8.15 to 2.8.18, by hand: the condition, and the seconds of retries at a
# first attach and after a loss.
SECONDS = [
    ("amqp:resource-locked", math.inf, 120.0),
    ("amqp:link:detach-forced", 0.0, 120.0),
    ("amqp:internal-error", 0.0, 120.0),
    ("amqp:resource-limit-exceeded", 0.0, 120.0),
    ("amqp:not-found", 0.0, 30.0),
    ("amqp:resource-deleted", 0.0, 0.0),
    ("amqp:unauthorized-access", 0.0, 0.0),
    ("amqp:not-allowed", 0.0, 0.0),
    ("amqp:not-implemented", 0.0, 0.0),
    ("amqp:link:stolen", 0.0, 0.0),
    ("amqp:invalid-field", 0.0, 0.0),
    ("amqp:decode-error", 0.0, 0.0),
    ("amqp:frame-size-too-small", 0.0, 0.0),
    ("amqp:illegal-state", 0.0, 0.0),
    ("amqp:precondition-failed", 0.0, 0.0),
    ("amqp:link:message-size-exceeded", 0.0, 0.0),
    ("amqp:link:transfer-limit-exceeded", 0.0, 0.0),
    ("vendor:something", 0.0, 0.0),
    ("", 0.0, 0.0),
]


@pytest.mark.parametrize(("name", "first", "again"), SECONDS)
def test_each_condition(name: str, first: float, again: float) -> None:
    condition = proton.Condition(name, "some text")
    assert retry_seconds(condition, first=True, reattach_timeout=TIMEOUT) == first
    assert retry_seconds(condition, first=False, reattach_timeout=TIMEOUT) == again


@pytest.mark.parametrize("first", [True, False])
def test_a_detach_without_a_condition_is_final(*, first: bool) -> None:
    assert retry_seconds(None, first=first, reattach_timeout=TIMEOUT) == 0


@pytest.mark.parametrize("name", ["amqp:internal-error", "amqp:resource-limit-exceeded", "amqp:not-allowed"])
def test_the_consumer_limit_of_artemis_is_retried_under_every_condition(name: str) -> None:
    """A half-open connection holds the subscription; the text is Artemis's."""
    text = "AMQ229200: Maximum Consumer Limit Reached on Queue:(address=prices,queue=client.prices)"
    condition = proton.Condition(name, text)
    assert retry_seconds(condition, first=True, reattach_timeout=TIMEOUT) == math.inf
    assert retry_seconds(condition, first=False, reattach_timeout=TIMEOUT) == TIMEOUT


@pytest.mark.parametrize(
    ("name", "timeout", "seconds"),
    [
        ("amqp:not-found", 10.0, 10.0),
        ("amqp:not-found", 3600.0, 30.0),
        ("amqp:internal-error", 3600.0, 3600.0),
        ("amqp:internal-error", 0.0, 0.0),
        ("amqp:not-found", 0.0, 0.0),
    ],
)
def test_the_option_is_the_longest_time(name: str, timeout: float, seconds: float) -> None:
    assert retry_seconds(proton.Condition(name), first=False, reattach_timeout=timeout) == seconds


@pytest.mark.parametrize(("opened", "kind"), [(True, LinkClosed), (False, LinkRefused)])
def test_the_error_names_node_and_reason(*, opened: bool, kind: type[Exception]) -> None:
    error = closed_by_peer(proton.Condition("amqp:not-found", "no such queue"), "orders", opened=opened)
    assert type(error) is kind
    assert "'orders' (amqp:not-found: no such queue)" in str(error)
    assert getattr(error, "condition", None) == "amqp:not-found"


def test_a_refusal_without_a_description_shows_none() -> None:
    error = closed_by_peer(proton.Condition("amqp:resource-deleted"), "orders", opened=True)
    assert str(error.args[0]) == "the primary detached the link to 'orders' (amqp:resource-deleted)"
