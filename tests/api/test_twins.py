"""Both APIs have the same names, parameters and docstrings, apart from the exceptions listed here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from haclient import aio, blocking

# The asyncio API's special methods, and their blocking counterparts.
SPECIAL = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}
# Different return types, with the reason.
RETURNED = {
    # the returned object is open already
    "Opening[Connection]": "Connection",
    "Opening[Sender]": "Sender",
    "Opening[Receiver]": "Receiver",
    "asyncio.Future[Outcome]": "Future[Outcome]",  # settled on another thread than the waiting one
    "AsyncEvents": "BlockingEvents",  # awaited, or read by a thread
    "AsyncIterator[Delivery]": "Iterator[Delivery]",  # the same
}
# Different argument types, with the reason.
MESSAGES = "Iterable[proton.Message | SendableBody]"
TAKEN = {
    # The blocking API cannot wait for an asynchronous iterator.
    f"{MESSAGES} | Async{MESSAGES}": MESSAGES,
}
# Words of docstrings.
WORDS = {"An asynchronous iterator": "An iterator", "an asynchronous iterator": "an iterator"}
CLASSES = ("ConnectionFactory", "Connection", "Sender", "Receiver", "Delivery")


def members(of: type) -> Mapping[str, Any]:
    """Return a class's public names, without names that both classes inherit from the same base."""
    found = {name: value for each in reversed(of.__mro__[:-1]) for name, value in vars(each).items()}
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_") or name in SPECIAL or name in SPECIAL.values()
    }


def twins() -> Iterator[tuple[str, Any, Any]]:
    yield "connect", aio.connect, blocking.connect
    for name in CLASSES:
        one, other = getattr(aio, name), getattr(blocking, name)
        yield name, one, other
        for member, value in members(one).items():
            yield f"{name}.{member}", value, members(other).get(SPECIAL.get(member, member))


TWINS = list(twins())


def function(member: Any) -> Any:
    """Return the function of a method or property; a class has its non-public constructor instead."""
    if isinstance(member, property):
        return member.fget
    return member.__func__ if isinstance(member, classmethod) else member


def signature(member: Any) -> list[tuple[str, object, object, str]]:
    found = inspect.signature(function(member)).parameters.values()
    return [(each.name, each.kind, each.default, str(each.annotation)) for each in found]


def returned(member: Any) -> str:
    return str(inspect.signature(function(member)).return_annotation)


def test_both_have_the_same_names() -> None:
    assert set(aio.__all__) - {"Opening"} == set(blocking.__all__) == {"connect", *CLASSES}
    for name in CLASSES:
        one, other = members(getattr(aio, name)), members(getattr(blocking, name))
        assert {SPECIAL.get(each, each) for each in one} == set(other), name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(one, other, id=name)
        for name, one, other in TWINS
        if not inspect.isclass(one) and "__" not in name
    ],
)
def test_a_call_takes_and_returns_the_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    taken = [(*rest, TAKEN.get(annotation, annotation)) for *rest, annotation in signature(one)]
    assert taken == signature(other)
    assert RETURNED.get(returned(one), returned(one)) == returned(other)


@pytest.mark.parametrize(
    ("one", "other"), [pytest.param(one, other, id=name) for name, one, other in TWINS if "__" not in name]
)
def test_both_say_the_same_of_it(one: Any, other: Any) -> None:
    text = inspect.getdoc(one)
    assert text, "without a docstring"
    for word, twin in WORDS.items():
        text = text.replace(word, twin)
    assert text == inspect.getdoc(other)


def test_every_difference_listed_here_is_one() -> None:
    calls = [(one, other) for _, one, other in TWINS if not inspect.isclass(one)]
    differ = {(returned(one), returned(other)) for one, other in calls if returned(one) != returned(other)}
    assert differ == set(RETURNED.items())
    taken = [
        (one[-1], other[-1])
        for first, second in calls
        for one, other in zip(signature(first), signature(second), strict=True)
    ]
    assert {(one, other) for one, other in taken if one != other} == set(TAKEN.items())
    docs = [inspect.getdoc(one) or "" for _, one, _ in TWINS]
    assert all(any(word in text for text in docs) for word in WORDS)
