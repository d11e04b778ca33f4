"""A list of URLs is equivalent to one URL with commas."""

from __future__ import annotations

from typing import Any

import pytest

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.url import ClusterURL
from haclient.cluster_url.url_list import read_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("entries", "one"),
    [
        (["amqp://a:5672", "b:5673"], "amqp://a:5672,b:5673"),
        (("amqp://a", "b", "[::1]:7"), "amqp://a,b,[::1]:7"),
        (["amqp://a,b", "c"], "amqp://a,b,c"),
        (["amqps://u:p@a", "b"], "amqps://u:p@a,b"),
        (["amqp+ssl://a:5671", "amqp+ssl://b:5671"], "amqps://a,b"),
        (["AMQP+SSL://u:p@a", "b", "amqp://c"], "failover:(amqps://u:p@a,amqps://u:p@b,amqp://c)"),
        (["amqp://u:p@a", "amqps://v:q@b:1"], "failover:(amqp://u:p@a,amqps://v:q@b:1)"),
        (["amqp://u:p@a", "amqp://b"], "failover:(amqp://u:p@a,amqp://b)"),
        (["amqp://u:p@a", "amqp://v:q@b", "c"], "failover:(amqp://u:p@a,amqp://v:q@b,amqp://v:q@c)"),
        (["amqp://a/?window=5", "b", "amqp://c?credit=7&window=5"], "amqp://a,b,c/?window=5&credit=7"),
        (["amqp://a", "amqp://a"], "amqp://a"),
        (["failover:(amqp://a,amqp://b)?initialReconnectDelay=50"], "amqp://a,b/?backoff_base=50ms"),
        (["amqp+srv://name"], "amqp+srv://name"),
        ("amqp://a,b", "amqp://a,b"),
        ("amqp://a,amqp://b", "amqp://a,b"),
        ("amqp://u:p@a,amqps://v:q@b:1/?window=5", "failover:(amqp://u:p@a,amqps://v:q@b:1)?window=5"),
    ],
)
def test_a_list_and_one_text_mean_the_same(entries: Any, one: str) -> None:
    expected = ClusterURL.parse(one)
    assert read_url(entries) == expected
    assert [seed.password for seed in read_url(entries).seeds] == [seed.password for seed in expected.seeds]


def test_a_parsed_url_is_taken_as_it_is() -> None:
    url = ClusterURL.parse("amqp://a")
    assert read_url(url) is url


def test_the_options_that_were_written_are_known() -> None:
    assert read_url(["amqp://a?window=5", "amqp://b?credit=1"]).written == (
        ("window", "window"),
        ("credit", "credit"),
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, "not None"),
        (5, "not an int"),
        (b"amqp://a", "not a bytes"),
        ({"amqp://a": 1}, "not a dict"),
        ({"amqp://a"}, "not a set"),
        (["amqp://a", None], "not a list that holds None"),
        ([b"amqp://a"], "not a list that holds a bytes"),
    ],
)
def test_what_is_no_url_is_a_type_error_that_says_what_is_expected(given: Any, shown: str) -> None:
    with pytest.raises(TypeError) as caught:
        read_url(given)
    expected = "url: a cluster URL such as 'amqp://host:port,host:port', or a list of them, is expected, "
    assert str(caught.value) == expected + shown


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([], "the list of cluster URLs is empty"),
        (["a", "b"], "starts with one that has a scheme"),
        (["a", "amqp://b"], "starts with one that has a scheme"),
        (["amqp://a", f"u:{SECRET}@b"], "starts with one that has a scheme"),
        (["amqp://a", "failover:(amqp://b)"], "holds amqp:// or amqps:// URLs"),
        (["amqp://a", "amqp+srv://b"], "holds amqp:// or amqps:// URLs"),
        (["amqp://a", "b/queue"], "holds amqp:// or amqps:// URLs"),
        (["amqp://a", ""], "holds amqp:// or amqps:// URLs"),
        (["amqp://a", "b:99999"], "a port is a number"),
        (["amqp://a?window=5", "amqp://b?window=6"], "option 'window' has two values"),
        ([f"amqp://u:{SECRET}@a", "amqp://a"], "is listed twice, with different credentials"),
    ],
)
def test_a_list_that_means_nothing_is_refused_without_a_password(entries: list[str], words: str) -> None:
    with pytest.raises(ClusterURLError) as caught:
        read_url(entries)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
