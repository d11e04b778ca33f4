"""The attributes that group a fleet are on every line, with the same values as in OpenTelemetry's SDK."""

from __future__ import annotations

import itertools
import json
import logging
import os
import string
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import OTELResourceDetector

from haclient.cluster_url.attribute_list import MOST_ATTRIBUTES, parse_attributes
from haclient.cluster_url.endpoint import Endpoint
from haclient.events import Closed, Disconnected, Stamp
from haclient.factory.factory_core import FactoryCore
from haclient.telemetry import TelemetrySettings, flush, resource
from haclient.telemetry.record import Recorder
from haclient.telemetry.redact import Redactor
from haclient.telemetry.resource import Attributes, from_environment
from haclient.telemetry.schema import RESOURCE
from haclient.version import package_version
from tests.telemetry.lines import lines
from tests.telemetry.numbers import Numbers

ROOT = Path(__file__).resolve().parent.parent.parent
NUMBERS = itertools.count(1)
ENTRIES = st.text(alphabet=[*string.ascii_letters, *"=%; \t/+é\U0001f600-._:\"'"], max_size=12)
PIECES = st.one_of(
    st.sampled_from(["service.name=a", "service.version=1%2C2", "host.name=%ff", " cloud.region = eu ", ""]),
    st.builds("{}={}".format, st.sampled_from([key.name for key in RESOURCE] + ["team", "x"]), ENTRIES),
    ENTRIES,
)


def format_attributes(attributes: Mapping[str, str]) -> str:
    """Format attributes as a list: the inverse of ``parse_attributes``."""
    return ",".join(f"{quote(key, safe='/:')}={quote(value, safe='/:')}" for key, value in attributes.items())


def by_the_sdk(text: str, service: str = "") -> dict[str, Any]:
    """Return the SDK's reading of the variables."""
    with patch.dict(os.environ, {"OTEL_RESOURCE_ATTRIBUTES": text, "OTEL_SERVICE_NAME": service}):
        return dict(OTELResourceDetector().detect().attributes)


@given(st.lists(PIECES, max_size=6).map(",".join))
@example("service.version=a=b,service.version=2,host.name=")
def test_a_list_without_an_error_is_what_the_sdk_reads(text: str) -> None:
    """The SDK takes parts of a list with an error; the specification says that all of it is void."""
    try:
        found = parse_attributes(text)
    except ValueError:
        bad = [pair for pair in text.split(",") if pair.strip()]
        assert any("=" not in pair or not pair.partition("=")[0].strip() or "%" in pair for pair in bad)
        return
    assert found == {key: value for key, value in by_the_sdk(text).items() if "%" not in key}


@given(st.dictionaries(st.text(min_size=1).map(lambda text: f"k{text}k"), st.text(), max_size=20))
def test_a_formatted_list_is_read_by_both(attributes: dict[str, str]) -> None:
    plain = {key: value for key, value in attributes.items() if _is_text(key) and _is_text(value)}
    assert parse_attributes(format_attributes(plain)) == plain


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


@pytest.mark.parametrize("text", ["service.version", "=1", "host.name=50%", "host.name=%g1", "b,a=1"])
def test_a_variable_with_an_error_is_void_as_a_whole_and_reported_once(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = f"cloud.region=eu,{text}"
    with caplog.at_level(logging.WARNING, logger="haclient"):
        for _ in range(3):
            assert from_environment({"OTEL_RESOURCE_ATTRIBUTES": whole}) == Attributes({})
    (record,) = caplog.records
    assert "OTEL_RESOURCE_ATTRIBUTES is ignored as a whole: pair 2 " in record.message
    assert text not in record.message


def test_the_name_of_the_service_has_a_variable_of_its_own_which_wins() -> None:
    both = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a,service.version=1", "OTEL_SERVICE_NAME": "b"}
    assert dict(from_environment(both)) == {"service.name": "b", "service.version": "1"}
    assert by_the_sdk(*both.values()) == dict(from_environment(both))
    assert from_environment({**both, "OTEL_SERVICE_NAME": ""})["service.name"] == "a"


def test_what_nobody_groups_by_is_not_taken_and_values_are_cut() -> None:
    long = "x" * 5000
    given_ = {"process.command_args": ("--password", "x"), "host.name": long, "haclient.version": "0"}
    assert dict(Attributes(given_)) == {"host.name": "x" * resource.LONGEST}
    assert dict(Attributes({"deployment.environment": "prod"})) == {"deployment.environment.name": "prod"}
    with pytest.raises(ValueError, match="more than"):
        parse_attributes(",".join(f"a{number}=1" for number in range(MOST_ATTRIBUTES + 1)))
    with pytest.raises(ValueError, match=r"'attributes': attribute 'host\.name': int is not text"):
        TelemetrySettings("x", attributes={"host.name": 5})  # type: ignore[dict-item]


def test_settings_win_over_the_option_and_the_option_over_the_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {key.name: "variable" for key in RESOURCE}
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", format_attributes(everything))
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    settings = TelemetrySettings(tmp_path, service="mine", attributes={"host.name": "settings"})
    option = "cloud.region=option,host.name=option,service.name=option"
    written = written_by("amqp://a", telemetry=settings, telemetry_attributes=option)
    expected = everything | {
        "service.name": "mine",
        "host.name": "settings",
        "cloud.region": "option",
        "haclient.version": package_version(),
    }
    assert {name: written[name] for name in expected} == expected
    in_the_url = written_by(
        f"amqp://a?telemetry={tmp_path}&telemetry_attributes=service.name=url,cloud.region=x%252Cy"
    )
    assert (in_the_url["service.name"], in_the_url["cloud.region"]) == ("url", "x,y")
    assert in_the_url["host.name"] == "variable"


def written_by(url: str, **arguments: Any) -> Mapping[str, str]:
    """Return the data of the last line that a factory writes."""
    recorder = FactoryCore(url, **arguments)._recorder
    assert recorder is not None
    recorder.put(Closed(stamp(next(NUMBERS))))
    flush()
    found: dict[str, str] = lines(Path(recorder._channel.settings.directory), "closed")[-1]["data"]
    return found


def stamp(number: int) -> Stamp:
    return Stamp(client_id="c", connection=number, sequence=1, time=1e9 + number, monotonic=1.0, episode=1)


def test_a_changed_variable_counts_for_the_next_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2"):
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"service.version={version}")
        assert written_by("amqp://a", telemetry=tmp_path)["service.version"] == version


def test_the_attributes_are_encoded_once_for_a_process(tmp_path: Path) -> None:
    settings = TelemetrySettings(tmp_path, attributes={"host.name": "h"})
    first, second = (Recorder(settings, Redactor(), backoff_max=1.0) for _ in range(2))
    assert first._lines._shared is second._lines._shared
    before = first._lines._shared.text
    first.put(Closed(stamp(1)))
    flush()
    assert first._lines._shared.text is before


def test_an_attribute_with_a_password_is_left_out_from_when_it_is_known(tmp_path: Path) -> None:
    """This also holds for lines of other factories, and for lines about dropped lines, which no factory
    writes.
    """
    attributes = {"host.name": "db-hunter22", "cloud.region": "eu", "service.instance.id": "hunter22"}
    settings = TelemetrySettings(tmp_path, attributes=attributes, queue_size=1)
    knowing, other = (Recorder(settings, Redactor(), backoff_max=1.0) for _ in range(2))
    knowing.put(Closed(stamp(1)))
    flush()
    knowing._redactor.add("app", "hunter22")
    knowing.put(Closed(stamp(2)))
    flush()
    other.dropped = 7
    other.put(Disconnected(stamp(3), Endpoint("a", 1), "x", 0))
    flush()
    before, *after = lines(tmp_path)
    assert before["data"]["host.name"] == "db-hunter22"
    assert {line["type"].rpartition(".")[2] for line in after} == {"closed", "lost", "dropped"}
    for line in after:
        assert "hunter22" not in json.dumps(line)
        assert line["data"]["cloud.region"] == "eu"
        assert line["source"] == f"/haclient/{line['data']['service.instance.id']}"


def test_a_child_has_the_attributes_and_an_instance_of_its_own(tmp_path: Path) -> None:
    """OpenTelemetry's SDK does the same: no two instances may have the same id."""
    given_ = "service.instance.id=pod-7,service.version=1.4,k8s.pod.name=orders-7"
    command = [sys.executable, "-m", "tests.telemetry.numbers", str(tmp_path), "5", "fork"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OTEL_RESOURCE_ATTRIBUTES": given_}
    subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=30)
    found = lines(tmp_path)
    assert {line["data"]["k8s.pod.name"] for line in found} == {"orders-7"}
    assert {line["data"]["service.version"] for line in found} == {"1.4"}
    instances = {line["source"]: line["data"]["service.instance.id"] for line in found}
    assert len(instances) == 2
    (child,) = (source for source, instance in instances.items() if instance != "pod-7")
    assert child == f"/numbers/{instances[child]}"


def test_a_new_factory_of_a_child_writes_into_its_files(tmp_path: Path) -> None:
    settings = TelemetrySettings(tmp_path, attributes={"service.instance.id": "pod-7"})
    source = Numbers(settings)
    source.channel._process.is_child = True
    try:
        source.channel._begin()
        assert Numbers(settings).channel is source.channel
        assert source.channel._everywhere["instance"] == source.channel.instance
    finally:
        source.channel._process.is_child = False
