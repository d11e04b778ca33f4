"""Declarations of messages and bodies for type checkers are true at run time."""

from __future__ import annotations

import ast
import inspect
import itertools
import typing
from collections.abc import Iterator
from typing import Any

import proton
import pytest
from hypothesis import example, given

import haclient
from haclient.api.bases import BaseDelivery
from haclient.core.message_encoder import OutgoingMessage
from haclient.engine import codec
from haclient.engine.amqp_values import message
from haclient.engine.codec import Encoder
from tests.engine.test_codec import BODIES

# proton's constructor has no default for these, and returns the text of an absent symbol.
UNSET_SYMBOLS = ("content_type", "content_encoding")
SOURCE = ast.parse(inspect.getsource(message))


def declaration() -> ast.ClassDef:
    """Return the class that type checkers see."""
    (found,) = (
        node for node in ast.walk(SOURCE) if isinstance(node, ast.ClassDef) and node.name == "Message"
    )
    return found


def documented() -> Iterator[tuple[str, str]]:
    """Return the attributes of the declaration and their docstrings."""
    body = declaration().body
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(after, ast.Expr)
            assert isinstance(after.value, ast.Constant)
            yield node.target.id, str(after.value.value)
        elif isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield node.name, text


def defaults() -> dict[str, Any]:
    """Return the parameters of the declared constructor."""
    (init,) = (
        node for node in declaration().body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    values = [ast.literal_eval(each) for each in (*init.args.defaults, *init.args.kw_defaults) if each]
    names = [each.arg for each in (*init.args.args[1:], *init.args.kwonlyargs)]
    return dict(zip(names, values, strict=True))


def attributes_of_proton() -> set[str]:
    """Return the assignable attributes of proton's message."""
    properties = {name for name, value in vars(proton.Message).items() if isinstance(value, property)}
    return properties | {"properties", "body"}


def test_it_is_the_class_of_proton() -> None:
    assert haclient.Message is proton.Message is message.Message
    assert isinstance(codec.decode(Encoder().encode(proton.Message(body="one"))), haclient.Message)


def test_every_attribute_of_proton_is_documented_and_a_keyword() -> None:
    assert {name for name, _ in documented()} == set(defaults()) == attributes_of_proton()


@pytest.mark.parametrize(("name", "text"), list(documented()))
def test_the_text_names_the_section_and_the_default(name: str, text: str) -> None:
    assert "Section" in text or name == "inferred"
    assert "default" in text or name in UNSET_SYMBOLS


@pytest.mark.parametrize(("name", "default"), list(defaults().items()))
def test_the_default_is_that_of_proton(name: str, default: Any) -> None:
    made = proton.Message(**{name: default})
    assert getattr(made, name) == getattr(proton.Message(), name)
    if name in UNSET_SYMBOLS:
        assert (getattr(made, name), made.encode()) == ("None", proton.Message().encode())
    else:
        assert (getattr(made, name), type(getattr(made, name))) == (default, type(default))


def test_a_time_to_live_is_in_seconds_and_kept_in_milliseconds() -> None:
    sent = proton.Message(ttl=1.5, expiry_time=1795350615.123, creation_time=2.0004)
    received = codec.decode(Encoder().encode(sent))
    assert (received.ttl, received.expiry_time, received.creation_time) == (1.5, 1795350615.123, 2.0)
    assert codec.decode(Encoder().encode(proton.Message(ttl=0.0004))).ttl == 0
    assert proton.Message(ttl=4_294_967.295).ttl == 4_294_967.295
    for seconds in (4_294_967.296, -1):
        with pytest.raises(OverflowError):
            proton.Message(ttl=seconds)


BODY_TYPES = tuple(typing.get_origin(each) or each for each in typing.get_args(haclient.Body))


def inside(value: Any) -> Iterator[Any]:
    """Return a body, and the type that ``Body`` declares for values in its lists and maps."""
    yield value
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        yield from inside(each)


@given(BODIES)
@example([proton.char("é"), proton.float32(0.5), proton.decimal32(1), proton.decimal64(2)])
@example([proton.decimal128(b"x" * 16), proton.Array(proton.UNDESCRIBED, proton.Data.INT, 1, 2)])
@example([b"in a list", {b"key": b"in a map"}])
def test_every_body_that_arrives_is_of_the_union(body: Any) -> None:
    received = codec.decode(Encoder().encode(proton.Message(body=body))).body
    assert all(isinstance(each, BODY_TYPES) for each in inside(received))


def test_annotations_can_be_read_at_run_time() -> None:
    assert typing.get_type_hints(OutgoingMessage)["message"] is proton.Message
    for name in ("message", "body"):
        getter = vars(BaseDelivery)[name].fget
        assert "return" in typing.get_type_hints(getter)
