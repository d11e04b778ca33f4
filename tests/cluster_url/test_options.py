"""The table of options: every option, its values, its errors, and the formatter."""

from __future__ import annotations

import datetime
import pickle
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.option_values import as_text, seconds
from haclient.cluster_url.options import (
    OPTION_NAMES,
    Options,
    format_options,
    parse_options,
    with_overrides,
)
from haclient.retry.policy import Policy
from scripts.generate.option_reference import options_table

GOOD = [
    ("deadline", "2.5", 2.5),
    ("deadline", "250ms", 0.25),
    ("deadline", "5s", 5.0),
    ("deadline", "5m", 300.0),
    ("deadline", "1h", 3600.0),
    ("deadline", "1e2", 100.0),
    ("deadline", "none", None),
    ("startup_deadline", "None", None),
    ("max_attempts", "none", None),
    ("max_attempts", "7", 7),
    ("stagger", "10ms", 0.01),
    ("backoff_factor", "1.5", 1.5),
    ("redirects", "any", "any"),
    ("redirects", "none", "none"),
    ("pushed_members", "replace", "replace"),
    ("heartbeat", "0", 0.0),
    ("delivery", "at-most-once", "at-most-once"),
    ("duplicate_detection", "off", False),
    ("duplicate_detection", "YES", True),
    ("tls_verify", "0", False),
    ("sasl_plaintext", "no", False),
    ("window", "1", 1),
    ("max_frame_size", "512", 512),
    ("max_frame_size", "4294967295", 2**32 - 1),
    ("client_id", "billing-1", "billing-1"),
    ("vhost", "prod@corp", "prod@corp"),
    ("sasl_mechanisms", "scram-sha-256,PLAIN", ("SCRAM-SHA-256", "PLAIN")),
    ("sasl_mechanisms", "EXTERNAL+PLAIN ANONYMOUS+PLAIN", ("EXTERNAL", "PLAIN", "ANONYMOUS")),
    ("tls_ca", "/etc/pki/ca.pem", "/etc/pki/ca.pem"),
    ("tls_server_name", "Broker.Example", "broker.example"),
    ("nameserver", "127.0.0.1", "127.0.0.1"),
    ("nameserver", "dns.test:5353", "dns.test:5353"),
    ("nameserver", "::1", "::1"),
    ("nameserver", "[::1]:5353", "[::1]:5353"),
    ("send_timeout", "none", None),
    ("close_timeout", "0", 0.0),
]

BAD = [
    ("deadline", "soon"),
    ("deadline", "0"),
    ("deadline", "-1"),
    ("deadline", "5 s"),
    ("deadline", "5d"),
    ("deadline", "inf"),
    ("deadline", "nan"),
    ("deadline", "1e999"),
    ("deadline", ""),
    ("stagger", "0"),
    ("stagger", "none"),
    ("max_dials", "0"),
    ("max_dials", "1.5"),
    ("max_dials", "1" * 5000),
    ("max_attempts", "-1"),
    ("max_redirects", "-1"),
    ("redirects", "all"),
    ("backoff_factor", "0.5"),
    ("backoff_factor", "x"),
    ("heartbeat", "1ms"),
    ("delivery", "exactly-once"),
    ("duplicate_detection", "maybe"),
    ("window", "0"),
    ("credit", "4294967296"),
    ("max_frame_size", "511"),
    ("client_id", ""),
    ("vhost", "\udcff"),
    ("sasl_mechanisms", ",+ "),
    ("sasl_mechanisms", "PLAIN;LOGIN"),
    ("tls_server_name", "a b"),
    ("nameserver", "127.0.0.1:x"),
    ("nameserver", ":53"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_text_becomes_the_value_it_stands_for(name: str, text: str, value: object) -> None:
    got = getattr(parse_options([(name, text)]), name)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_an_error_that_names_the_option(name: str, text: str) -> None:
    with pytest.raises(ClusterURLError, match=f"option '{name}'") as caught:
        parse_options([(name, text)])
    assert caught.value.option == name


def test_an_unknown_option_is_an_error_with_the_likeliest_one() -> None:
    with pytest.raises(
        ClusterURLError, match="unknown option 'max-dial'; did you mean 'max_dials'"
    ) as caught:
        parse_options([("max-dial", "5")])
    assert caught.value.option == "max-dial"


def test_an_option_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ClusterURLError) as caught:
        parse_options([("zzz", "5")])
    assert str(caught.value) == "unknown option 'zzz'"


def test_a_repeated_option_is_an_error_even_with_the_same_value() -> None:
    with pytest.raises(ClusterURLError, match="'deadline' is given twice"):
        parse_options([("deadline", "5"), ("deadline", "5")])


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(ClusterURLError, match="tls_cert") as caught:
        parse_options([("tls_key", "k.pem")])
    assert caught.value.option == "tls_key"
    assert parse_options([("tls_key", "k.pem"), ("tls_cert", "c.pem")]).tls_key == "k.pem"


def test_the_errors_pickle() -> None:
    error = pickle.loads(pickle.dumps(ClusterURLError("text", "deadline")))  # noqa: S301  (its own bytes)
    assert (str(error), error.option) == ("text", "deadline")


def test_every_number_of_the_policy_is_an_option_with_the_same_default() -> None:
    assert {each.name for each in fields(Policy)} <= set(OPTION_NAMES)
    assert parse_options([]).policy() == Policy()


def test_the_policy_takes_over_what_was_written() -> None:
    options = parse_options([("stagger", "1"), ("max_attempts", "3"), ("redirects", "none"), ("window", "5")])
    assert options.policy() == Policy(stagger=1.0, max_attempts=3, redirects="none")


def test_keyword_overrides_take_python_values() -> None:
    options = with_overrides(
        Options(),
        deadline=5,
        startup_deadline=None,
        send_timeout=datetime.timedelta(milliseconds=1500),
        tls_verify=False,
        tls_ca=Path("/ca.pem"),
        sasl_mechanisms=("PLAIN", "external"),
        backoff_max="20s",
    )
    assert options == Options(
        deadline=5.0,
        startup_deadline=None,
        send_timeout=1.5,
        tls_verify=False,
        tls_ca="/ca.pem",
        sasl_mechanisms=("PLAIN", "EXTERNAL"),
        backoff_max=20.0,
    )


def test_keyword_overrides_keep_what_they_do_not_name() -> None:
    assert with_overrides(Options(window=5), credit=7) == Options(window=5, credit=7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deadline", -1),
        ("deadline", True),
        ("deadline", float("nan")),
        ("deadline", object()),
        ("stagger", None),
        ("redirects", None),
        ("tls_verify", 5),
        ("window", 1.5),
        ("deadlin", 5),
    ],
)
def test_keyword_overrides_are_checked_like_the_url(name: str, value: object) -> None:
    with pytest.raises(ClusterURLError, match=f"'{name}'") as caught:
        with_overrides(Options(), **{name: value})
    assert caught.value.option == name


@given(st.floats(min_value=0.001, max_value=1e8))
def test_every_time_survives_the_way_to_text_and_back(value: float) -> None:
    assert seconds(0.001).parse(as_text(value)) == value


def test_only_what_differs_from_the_defaults_is_written() -> None:
    assert format_options(Options()) == ""
    options = Options(deadline=2.5, startup_deadline=None, vhost="a&b@c d", sasl_mechanisms=("A", "B"))
    expected = "deadline=2.5&startup_deadline=none&vhost=a%26b%40c%20d&sasl_mechanisms=A,B"
    assert format_options(options) == expected


def test_the_table_has_a_row_for_every_option() -> None:
    header, rule, *rows = options_table().splitlines()
    assert [row.split("`")[1] for row in rows] == list(OPTION_NAMES)
    assert {line.count("|") for line in (header, rule, *rows)} == {7}
    assert "| `stagger` | `0.25` | seconds | if TCP is not connected after this long" in options_table()
    assert "`at-least-once`, `at-most-once` |" in options_table()
