"""What fuzzing has kept, and seeds of valid traffic, as plain tests: no input breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz import script
from tests.fuzz.target import Target
from tests.fuzz.targets import NAMES, make


@pytest.fixture(params=NAMES)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    made = make(request.param)
    yield made
    made.close()


def test_no_input_of_the_corpus_breaks_a_rule(target: Target) -> None:
    seeds = target.seeds()
    assert seeds
    for path in seeds:
        try:
            target.run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.name}: {error}") from error


def test_the_planted_bug_is_not_in_the_way_of_valid_traffic(target: Target) -> None:
    """Else a session would find it at once, which proves nothing."""
    with target.planted():
        for path in target.seeds():
            target.run(path.read_bytes())


def test_what_is_no_valid_input_is_one_all_the_same(target: Target) -> None:
    for data in (b"", b"\x00", b"\xff" * 300, bytes(range(256))):
        target.run(data)


def test_a_script_is_read_as_it_was_written() -> None:
    steps = [
        script.Step(script.Kind.RAW, b"AMQP\x00\x01\x00\x00"),
        script.Step(script.Kind.FRAME, b"\x00\x00\x53\x10\x45", at_once=True),
        script.Step(script.Kind.SASL, b"\x00\x53\x41\x45"),
        script.Step(script.Kind.TIME, b"\x01"),
    ]
    assert list(script.parse(script.encode(steps))) == steps
    sent = b"".join(script.wire(step) for step in steps[:3])
    assert [step.body for step in script.of_wire(sent)] == [step.body for step in steps[:3]]
