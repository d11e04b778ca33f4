"""``haclient explain`` and ``haclient watch``."""

from __future__ import annotations

import json
import signal
from dataclasses import fields
from typing import Any

import pytest
from click.testing import CliRunner, Result

from haclient.cli import main
from haclient.cluster_url.options import OPTION_NAMES
from haclient.events import Stamp
from tests.cli.command import Running, run
from tests.dnsmasq import Dnsmasq
from tests.members import Members

SECRET = "hunter2"
NONE = dict.fromkeys(
    ("HACLIENT_URL", "HACLIENT_USER", "HACLIENT_PASSWORD", "HACLIENT_CREDIT", "HACLIENT_CONFIG")
)


def explain(*arguments: str, **variables: str) -> Result:
    return CliRunner(env={**NONE, **variables}).invoke(main, ["explain", *arguments])


def explained(*arguments: str, **variables: str) -> dict[str, Any]:
    done = explain("--json", *arguments, **variables)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


FORMS = [
    ("amqp://a", "one member, or an address that moves"),
    ("amqps://a,b", "list of members"),
    ("amqp+ssl://a:5671", "one member, or an address that moves"),
    ("amqp+srv://a", "one name whose SRV records list the members"),
    ("failover:(amqp://a)", "failover list, as Qpid JMS and ActiveMQ write it"),
    ("amqp:tcp:a:5672", "addresses as Qpid C++ writes them"),
]


@pytest.mark.parametrize(("url", "form"), FORMS)
def test_every_form_is_called_by_its_name(url: str, form: str) -> None:
    assert explained(url, "--no-resolve")["form"] == form


def test_every_option_has_its_value_and_where_it_came_from() -> None:
    url = "failover:(amqp://127.0.0.1)?failover.maxReconnectDelay=5000&window=1000"
    options = explained(url, "-o", "deadline=5m", HACLIENT_CREDIT="7", HACLIENT_URL="amqp://elsewhere")[
        "options"
    ]
    assert tuple(options) == OPTION_NAMES
    assert options["backoff_max"] == {
        "value": "5",
        "default": "10",
        "from": "URL, as failover.maxReconnectDelay",
    }
    assert options["window"]["from"] == "URL"
    assert options["deadline"] == {"value": "300", "default": "none", "from": "argument"}
    assert options["credit"] == {
        "value": "7",
        "default": "100",
        "from": "environment variable HACLIENT_CREDIT",
    }
    assert options["heartbeat"]["from"] == "default"


def test_names_are_resolved_and_the_order_is_that_of_the_attempts(tmp_path: Any) -> None:
    with Dnsmasq(tmp_path) as dns:
        dns.set_hosts({"a.test": ["127.0.0.2"], "b.test": ["127.0.0.3"]})
        found = explained(
            "amqp://b.test,gone.test,127.0.0.1:5673,a.test", "-o", f"nameserver={dns.nameserver}"
        )
    assert found["order"] == [
        "amqp://127.0.0.3:5672 (b.test)",
        "amqp://127.0.0.1:5673",
        "amqp://127.0.0.2:5672 (a.test)",
    ]
    problems = {member["endpoint"]: member["problem"] for member in found["members"]}
    assert "gone.test" in problems["amqp://gone.test:5672"]


def test_the_members_of_a_second_site_come_later() -> None:
    url = "amqp://127.0.0.1?dr=127.0.0.2:5673&dr_after=5"
    found = explained(url)
    assert (found["order"], found["other_site"]) == (["amqp://127.0.0.1:5672"], ["amqp://127.0.0.2:5673"])
    assert "after 5 s also: amqp://127.0.0.2:5673" in explain(url).stdout


def test_no_password_is_shown_wherever_it_comes_from(tmp_path: Any) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    for url, variables in [
        (f"amqp://u:{SECRET}@127.0.0.1", {}),
        ("amqp://127.0.0.1", {"HACLIENT_USER": "u", "HACLIENT_PASSWORD": SECRET}),
        ("amqp://127.0.0.1", {"HACLIENT_USER": "u", "HACLIENT_PASSWORD_FILE": str(file)}),
    ]:
        for form in ((), ("--json",)):
            done = explain(url, *form, **variables)
            assert done.exit_code == 0
            assert SECRET not in done.output
            assert "***" in done.output


def test_people_see_the_same() -> None:
    shown = explain("amqp://127.0.0.1,127.0.0.2?stagger=0.5").stdout
    assert "  1. amqp://127.0.0.1:5672\n  2. amqp://127.0.0.2:5672\n" in shown
    assert "beside it when that hangs for 0.5 s" in shown
    line = next(line for line in shown.splitlines() if line.startswith("  stagger "))
    assert line.split() == ["stagger", "0.5", "0.25", "URL"]


def test_what_is_wrong_is_a_sentence() -> None:
    done = explain("failover:(amqp://127.0.0.1)?randomize=true")
    assert done.exit_code == 2
    assert "option 'randomize': 'true' has no counterpart here" in done.stderr
    done = explain(HACLIENT_URL="amqp://a?credit=x")
    assert done.exit_code == 2
    assert "HACLIENT_URL" in done.stderr


def test_watch_prints_a_line_for_each_event_as_it_happens(members: Members) -> None:
    primary, passive = members.pair()
    url = f"amqp://{primary.address},{passive.address}?backoff_base=0.02&standby=none"
    with Running("watch", url) as watching:
        assert watching.line().split()[1:] == ["attempt-started", "1:", primary.url]
        assert watching.line().split()[1:4] == ["connected", f"{primary.url},", "generation"]
        primary.kill()
        assert watching.line().split()[1:3] == ["disconnected", f"{primary.url}:"]
        passive.promote()
        while " reconnected " not in (line := watching.line()):
            pass
        assert f"{passive.url}, generation 2" in line
        assert watching.interrupt(signal.SIGTERM) == 0


def test_watch_ends_after_so_many_events_or_seconds(members: Members) -> None:
    primary = members.start("primary", role="primary")
    done = run("watch", primary.url, "--json", "--count", "2")
    started, connected = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    stamp = {each.name for each in fields(Stamp)}
    assert set(started) == {"event", *stamp, "attempt", "endpoint"}
    assert (started["event"], connected["event"], connected["sequence"]) == (
        "attempt-started",
        "connected",
        2,
    )
    assert (connected["endpoint"], connected["generation"], connected["cluster"]) == (
        primary.url,
        1,
        "haclient",
    )
    done = run("watch", primary.url, "--duration", "0.3")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


def test_watch_fails_when_the_search_gives_up() -> None:
    done = run("watch", "amqp://127.0.0.1:1", "-o", "max_attempts=1", "--json")
    assert done.returncode == 4
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["attempt-started", "attempt-failed", "gave-up"]
    assert events[1]["record"]["failure"]["kind"] == "refused"
