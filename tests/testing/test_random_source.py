from __future__ import annotations

import random

import pytest

from haclient import aio, blocking
from haclient.errors import ClusterURLError
from haclient.testing import random_source

URL = "amqp://nowhere.invalid"


def test_factories_that_are_made_inside_draw_from_it_and_no_others() -> None:
    rng = random.Random(1)
    with random_source(rng):
        inside = aio.ConnectionFactory(URL), blocking.ConnectionFactory(URL)
    outside = aio.ConnectionFactory(URL)
    assert [each._core._identity.rng is rng for each in (*inside, outside)] == [True, True, False]


def test_the_names_of_two_clients_differ_all_the_same() -> None:
    names = set()
    for _ in range(2):
        with random_source(random.Random(1)):
            names.add(aio.ConnectionFactory(URL).client_id)
    assert len(names) == 2


def test_anything_else_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match="rng: expected Random, not int"):
        random_source(1).__enter__()  # type: ignore[arg-type]


def test_connect_has_no_such_argument() -> None:
    with pytest.raises(ClusterURLError, match="unknown option 'rng'"):
        aio.connect(URL, rng=random.Random(1))  # type: ignore[call-arg]


def test_the_fixture_draws_the_same_each_time(haclient_random_source: random.Random) -> None:
    assert aio.ConnectionFactory(URL)._core._identity.rng is haclient_random_source
    assert haclient_random_source.random() == random.Random(0).random()
