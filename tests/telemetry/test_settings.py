"""Where telemetry is written, and whether it is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from haclient import aio
from haclient.cluster_url.errors import ClusterURLError
from haclient.factory.factory_core import FactoryCore
from haclient.telemetry import TelemetrySettings
from haclient.telemetry.settings import file_stem, resolve


def directory(url: str = "amqp://a", **arguments: object) -> str | None:
    recorder = FactoryCore(url, **arguments)._recorder  # type: ignore[arg-type]
    return None if recorder is None else str(recorder._channel.settings.directory)


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HACLIENT_TELEMETRY", str(tmp_path / "variable"))
    return tmp_path / "variable"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HACLIENT_TELEMETRY", raising=False)


def test_it_is_off_until_somebody_turns_it_on() -> None:
    assert directory() is None


def test_the_variable_turns_it_on(variable: Path) -> None:
    assert directory() == str(variable)


def test_an_empty_variable_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACLIENT_TELEMETRY", "")
    assert directory() is None


def test_the_option_wins_over_the_variable(variable: Path, tmp_path: Path) -> None:
    assert directory(f"amqp://a?telemetry={tmp_path}/option") == f"{tmp_path}/option"


def test_the_argument_wins_over_both(variable: Path, tmp_path: Path) -> None:
    url = f"amqp://a?telemetry={tmp_path}/option"
    assert directory(url, telemetry=tmp_path / "argument") == str(tmp_path / "argument")
    assert directory(url, telemetry=str(tmp_path / "argument")) == str(tmp_path / "argument")
    assert directory(url, telemetry=TelemetrySettings(tmp_path / "settings")) == str(tmp_path / "settings")


@pytest.mark.parametrize("value", ["", "none"])
def test_an_empty_option_turns_it_off_whatever_the_variable_says(variable: Path, value: str) -> None:
    assert directory(f"amqp://a?telemetry={value}") is None


def test_an_empty_argument_turns_it_off_whatever_the_others_say(variable: Path, tmp_path: Path) -> None:
    assert directory(f"amqp://a?telemetry={tmp_path}", telemetry="") is None


def test_a_relative_directory_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert directory(telemetry="here") == str(tmp_path / "here")


def test_the_failover_form_takes_the_option_as_well(tmp_path: Path) -> None:
    factory = aio.ConnectionFactory(f"failover:(amqp://a,amqp://b)?telemetry={tmp_path}")
    assert factory._core.options.telemetry == str(tmp_path)


def test_an_option_that_is_no_path_is_an_error() -> None:
    with pytest.raises(ClusterURLError, match="telemetry"):
        FactoryCore("amqp://a?telemetry=%00")


@pytest.mark.parametrize(
    ("name", "value"),
    [("rotate_size", 0), ("rotate_seconds", -1), ("queue_size", True), ("alive_interval", float("inf"))],
)
def test_a_setting_that_makes_no_sense_is_an_error(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        TelemetrySettings("x", **{name: value})  # type: ignore[arg-type]


def test_other_settings_that_make_no_sense_are_errors() -> None:
    with pytest.raises(ValueError, match="fsync"):
        TelemetrySettings("x", fsync="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="directory"):
        TelemetrySettings("")


def test_the_service_is_named_by_settings_then_by_opentelemetry() -> None:
    theirs = {"OTEL_SERVICE_NAME": "theirs"}
    assert TelemetrySettings("x", service="mine").resource(theirs)["service.name"] == "mine"
    assert TelemetrySettings("x").resource(theirs)["service.name"] == "theirs"
    assert "service.name" not in TelemetrySettings("x").resource({})


@pytest.mark.parametrize(
    ("service", "stem"),
    [
        ("orders", "orders"),
        ("../etc/passwd", "etc-passwd"),
        ("_hidden", "hidden"),
        (".x", "x"),
        ("ü", "haclient"),
    ],
)
def test_a_service_becomes_a_file_name_that_every_reader_reads(service: str, stem: str) -> None:
    assert file_stem(service) == stem


def test_settings_win_over_an_option_that_turns_it_off(tmp_path: Path) -> None:
    settings = TelemetrySettings(tmp_path)
    assert resolve(settings, "", {}) is settings
