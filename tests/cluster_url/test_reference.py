"""What is generated from the table of options is current."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from haclient.cluster_url import option_types
from haclient.cluster_url.option_types import OptionArguments
from haclient.cluster_url.options import ABOUT, OPTION_NAMES, Options, with_overrides
from haclient.cluster_url.reference import aliases
from haclient.cluster_url.reference import option_types as generated


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


def test_the_aliases_are_those_of_the_tables_of_other_clients() -> None:
    """By the options that they set, or by the same name."""
    assert aliases("backoff_max") == {
        "Qpid JMS": ("maxReconnectDelay",),
        "ActiveMQ": ("maxReconnectDelay",),
        "Qpid C++": ("reconnect_interval_max", "reconnect_interval"),
    }
    assert aliases("heartbeat")["Qpid C++"] == ("heartbeat",)
    assert not any(aliases("dr").values())
