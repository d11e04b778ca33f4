"""What is generated from the table of options is current."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest

from haclient.cluster_url import option_types
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.option_types import OptionArguments
from haclient.cluster_url.options import ABOUT, OPTION_NAMES, Options, with_overrides
from haclient.cluster_url.reference import aliases
from haclient.cluster_url.reference import option_types as generated
from haclient.cluster_url.url import ClusterURL
from tests.docs.pages import ROOT


def test_the_signature_is_that_of_the_table() -> None:
    """``scripts/readme_tables.py`` writes it anew."""
    assert Path(option_types.__file__).read_text() == generated()


def test_the_signature_has_every_option_but_telemetry() -> None:
    """The factory declares that one itself: it takes settings as well."""
    assert list(OptionArguments.__annotations__) == [name for name in OPTION_NAMES if name != "telemetry"]


@pytest.mark.parametrize("name", OptionArguments.__annotations__)
def test_the_default_has_the_type_of_the_signature(name: str) -> None:
    """And none only where the table allows it."""
    hint = typing.get_type_hints(OptionArguments)[name]
    choices = typing.get_args(hint)
    default = getattr(Options(), name)
    assert (type(None) in choices) == ABOUT[name].optional
    if ABOUT[name].kind.choices:
        assert choices == ABOUT[name].kind.choices
        assert all(getattr(with_overrides(Options(), **{name: each}), name) == each for each in choices)
    else:
        assert default is None or type(default) in choices


@pytest.mark.parametrize("name", [name for name in OPTION_NAMES if ABOUT[name].optional])
def test_the_none_of_the_table_is_none_in_python(name: str) -> None:
    """As docs/options.md says."""
    in_a_url = ClusterURL.parse(f"amqp://a/?{name}=none").options
    assert with_overrides(Options(), **{name: None}) == in_a_url
    assert getattr(in_a_url, name) is None


def test_the_options_that_have_a_choice_none_are_those_that_the_page_names() -> None:
    page = (ROOT / "docs" / "options.md").read_text()
    (sentence,) = re.findall(r"Only (.*?) have a choice of that name", page, re.DOTALL)
    named = [name for name in OPTION_NAMES if "none" in ABOUT[name].kind.choices]
    assert sorted(re.findall("`(.*?)`", sentence)) == sorted(named)
    for name in named:
        assert getattr(with_overrides(Options(), **{name: "none"}), name) == "none"
        with pytest.raises(
            ClusterURLError, match=f"option '{name}': None is not a value of it; write \"none\""
        ):
            with_overrides(Options(), **{name: None})


def test_the_aliases_are_those_of_the_tables_of_other_clients() -> None:
    """By the options that they set, or by the same name."""
    assert aliases("backoff_max") == {
        "Qpid JMS": ("maxReconnectDelay",),
        "ActiveMQ": ("maxReconnectDelay",),
        "Qpid C++": ("reconnect_interval_max", "reconnect_interval"),
    }
    assert aliases("heartbeat")["Qpid C++"] == ("heartbeat",)
    assert not any(aliases("dr").values())
