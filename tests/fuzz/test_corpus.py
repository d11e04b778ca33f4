"""The fuzzer's stored inputs, and seeds of valid traffic, as plain tests: no input breaks a rule."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.fuzz import script
from tests.fuzz.target import Defect, Target
from tests.fuzz.targets import NAMES, make
from tests.fuzz.targets.client_users import ClientWithUser
from tests.fuzz.targets.replication_backup import ReplicationBackup
from tests.fuzz.targets.server_users import let_in_by_seeds
from tests.fuzz.values import Reader, Writer


@pytest.fixture(params=NAMES)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    made = make(request.param)
    yield made
    made.close()


def test_no_input_of_the_corpus_breaks_a_rule(target: Target) -> None:
    assert target.seeds()
    for path in target.inputs():
        try:
            target.run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.name}: {error}") from error


def test_the_planted_bug_is_not_in_the_way_of_valid_traffic(target: Target) -> None:
    """Otherwise a session would find it at once, which proves nothing."""
    with target.planted():
        for path in target.seeds():
            target.run(path.read_bytes())


def test_what_is_no_valid_input_is_one_all_the_same(target: Target) -> None:
    for data in (b"", b"\x00", b"\xff" * 300, bytes(range(256))):
        target.run(data)


def test_a_seed_with_the_password_is_let_in_and_no_other() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        found = process.submit(let_in_by_seeds).result()
    own = {"send": "guest", "manage": "cluster-admin", "guest-manages": "guest", "wrong-password": None}
    assert found == {**dict.fromkeys(found), **found, **own}


def test_a_peer_with_the_password_is_believed_and_no_other() -> None:
    target = ClientWithUser()
    seeds = {path.name: path.read_bytes() for path in target.seeds()}
    steps = list(script.parse(seeds["send"]))
    first = next(at for at, step in enumerate(steps) if step.kind is script.Kind.PROOF)
    without = script.encode([*steps[: first + 1], *steps[first + 2 :]])
    wrong = script.encode(
        [step._replace(body=b"\x20wrong") if step.kind is script.Kind.PROOF else step for step in steps]
    )
    believed = []
    for data in (seeds["send"], seeds["wrong-password"], without, wrong):
        target.run(data)
        believed.append(target.connected)
    target.close()
    assert believed == [True, False, False, False]


def test_a_planted_bug_is_found_with_one_change_of_a_seed() -> None:
    """One outcome becomes another, as by a mutation of the fuzzer.

    If the replication version has changed since the seeds were recorded, the primary refuses them.
    ``python -m tests.fuzz.record`` records new ones.
    """
    target = make("replication_primary")
    seed = (target.folder / "pair").read_bytes()
    inputs = (script.mutate(seed, 4096, number, lambda data, _: data) for number in range(2000))
    with target.planted(), pytest.raises(Defect):
        collections.deque(map(target.run, inputs), maxlen=0)
    target.close()


def test_a_backup_follows_the_primary_that_was_recorded() -> None:
    """If this fails, run ``python -m tests.fuzz.record``, as above."""
    target = ReplicationBackup()
    for path in target.seeds():
        target.run(path.read_bytes())
        assert target.followed, path
    target.close()


def test_values_are_read_as_they_were_written() -> None:
    words = ("name", "count", "all")
    value = {"name": ["all", 3, True], "other": {"count": -1, "none": None}}
    assert Reader(Writer(words).map(value), words).map() == value


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
