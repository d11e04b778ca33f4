"""``haclient members`` against real members: dead, stopped, passive, stale, behind TLS, unlisted."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
from typing import Any

import pytest
from click.testing import CliRunner

from broker_stub.local_cluster.member_process import free_addresses
from haclient.cli import main
from haclient.cluster_url.endpoint import Endpoint
from tests.certificates import Authority
from tests.cli.command import HACLIENT, PATIENCE, environment, run
from tests.members import Members

NONE = dict.fromkeys(("HACLIENT_URL", "HACLIENT_USER", "HACLIENT_PASSWORD", "HACLIENT_CONFIG"))
SECRET = "correct horse battery staple"
KEYS = (
    "endpoint name origin reachable primary second_site role generation cluster container product version "
    "tls mechanism tcp_seconds open_seconds kind why"
)


def asked(*arguments: str, code: int = 0, **variables: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document of ``members --json``, and its members by endpoint."""
    done = CliRunner(env={**NONE, **variables}).invoke(main, ["members", "--json", *arguments])
    assert done.exit_code == code, done.output
    document = json.loads(done.stdout)
    return document, {member["endpoint"]: member for member in document["members"]}


def test_each_member_is_described_and_the_primary_named(members: Members) -> None:
    primary, passive = members.pair()
    document, found = asked(f"amqp://{primary.address},{passive.address}")
    assert set(document) == {
        *("url", "primary", "generation", "cluster", "seconds"),
        *("members", "remarks"),
    }
    assert all(set(member) == set(KEYS.split()) for member in found.values())
    assert (document["primary"], document["generation"]) == (primary.url, 1)
    first, second = found[primary.url], found[passive.url]
    assert (first["reachable"], first["primary"], first["role"], first["why"]) == (
        True,
        True,
        "primary",
        None,
    )
    assert 0 < first["tcp_seconds"] < first["open_seconds"]
    assert (first["mechanism"], first["tls"], first["product"]) == ("ANONYMOUS", None, "haclient-broker-stub")
    assert (second["reachable"], second["primary"], second["role"]) == (True, False, "passive")
    assert (second["kind"], second["why"]) == ("redirected", f"redirected to {primary.url}")


def test_people_get_a_line_for_each_member_and_the_verdict(members: Members) -> None:
    primary, passive = members.pair()
    done = run("members", HACLIENT_URL=f"amqp://{primary.address},{passive.address}")
    assert done.returncode == 0
    heading, first, second, verdict = done.stdout.splitlines()
    assert heading.split()[:4] == ["member", "answers", "role", "generation"]
    assert first.split()[:4] == [primary.url, "yes", "primary", "1"]
    assert second.split()[:4] == [passive.url, "yes", "passive", "1"]
    assert verdict.startswith(f"primary: {primary.url} (2 asked in ")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 60])
def test_a_narrow_terminal_gets_lines_and_no_table_for_each_member(
    members: Members, authority: Authority, columns: int
) -> None:
    primary = members.start(
        "primary", role="primary", users={"joe": SECRET}, certificate=authority.issue("127.0.0.1")
    )
    (nobody,) = free_addresses((Endpoint("127.0.0.1", 0),))
    url = f"amqps://joe:{SECRET.replace(' ', '%20')}@{primary.address},{nobody.authority}"
    lines = in_a_terminal(columns, "members", url, "-o", f"tls_ca={authority.file}")
    assert max(map(len, lines)) <= columns
    *found, verdict = re.split(r"\n(?! )", "\n".join(lines))
    first, second = (each.split("\n", 1) for each in found)
    assert first[0] == f"{primary.url}: primary, generation 1"
    facts = r"    TCP [.0-9]+ ms, Open [.0-9]+ ms, TLSv1\.\d, SCRAM-SHA-512-PLUS, haclient-broker-stub \S+"
    assert re.fullmatch(facts, first[1].replace("\n   ", ""))
    assert second == [f"amqps://{nobody.authority}: no answer", "    connection refused"]
    assert verdict.startswith(f"primary: {primary.url} (2 asked in ")


@pytest.mark.slow
def test_a_long_reason_is_wrapped_and_nothing_is_cut(members: Members) -> None:
    primary, passive = members.pair()
    arguments = ("members", f"amqp://{primary.address},{passive.address}", "--timeout", "0.5")
    primary.pause()
    wide, narrow = in_a_terminal(300, *arguments), in_a_terminal(40, *arguments)
    primary.resume()
    assert len(wide) == 4, wide
    text = " ".join(line.strip() for line in narrow)
    reason = "TCP connects, but the AMQP header is not answered within 0.5 s: "
    assert f"{primary.url}: no answer {reason}" in text
    assert f"redirected to {primary.url}; TCP " in text
    assert all(len(line) <= 40 or " " not in line.strip() for line in narrow)


def in_a_terminal(columns: int, *arguments: str) -> list[str]:
    """Return the lines that the command prints to a terminal of this width, without colours."""
    mine, its = pty.openpty()
    variables = environment(TERM="xterm", COLUMNS=str(columns))
    with subprocess.Popen([HACLIENT, *arguments], stdout=its, env=variables) as command:
        os.close(its)
        seen = b""
        with contextlib.suppress(OSError):  # on Linux: the other end is closed
            while data := os.read(mine, 65536):
                seen += data
        os.close(mine)
        assert command.wait(PATIENCE) in {0, 1}
    return re.sub(r"\x1b\[[\d;]*m", "", seen.decode()).splitlines()


def test_a_stopped_member_is_named_with_the_reason_within_three_seconds(members: Members) -> None:
    primary, passive = members.pair()
    passive.pause()
    document, found = asked(f"amqp://{primary.address},{passive.address}")
    assert document["seconds"] < 3
    assert document["primary"] == primary.url
    stopped = found[passive.url]
    assert (stopped["reachable"], stopped["kind"]) == (False, "timed-out")
    assert "is the process stopped?" in stopped["why"]
    assert stopped["tcp_seconds"] is not None


def test_without_a_primary_the_exit_code_is_1_whether_it_is_stopped_or_dead(members: Members) -> None:
    primary, passive = members.pair()
    url = f"amqp://{primary.address},{passive.address}"
    primary.pause()
    document, found = asked(url, "--timeout", "0.5", code=1)
    assert document["primary"] is None
    assert (found[primary.url]["kind"], found[passive.url]["kind"]) == ("timed-out", "redirected")
    primary.kill()
    _, found = asked(url, code=1)
    assert (found[primary.url]["kind"], found[primary.url]["why"]) == ("refused", "connection refused")


def test_a_dead_backup_does_no_harm(members: Members) -> None:
    primary, passive = members.pair()
    passive.kill()
    document, found = asked(f"amqp://{primary.address},{passive.address}")
    assert document["primary"] == primary.url
    assert found[passive.url]["kind"] == "refused"


def test_members_that_the_url_leaves_out_are_asked_too(members: Members) -> None:
    primary, passive = members.pair(advertised=True)
    _, found = asked(f"amqp://{passive.address}")
    assert (found[primary.url]["origin"], found[primary.url]["primary"]) == ("pushed", True)
    document, found = asked(
        f"amqp://{passive.address}", "-o", "pushed_members=ignore", "-o", "redirects=none", code=1
    )
    assert set(found) == {passive.url}
    assert document["primary"] is None


def test_the_members_of_a_second_site_are_asked_too(members: Members) -> None:
    primary, passive = members.pair()
    _, found = asked(f"amqp://{passive.address}", "-o", f"dr={primary.address}", "-o", "redirects=none")
    assert found[primary.url]["primary"]


def test_the_target_of_a_redirect_is_asked_too(members: Members) -> None:
    primary, passive = members.pair()
    document, found = asked(f"amqp://{passive.address}")
    assert document["primary"] == primary.url
    assert found[primary.url]["origin"] == "redirect"


def test_a_stale_primary_is_distinguished_from_the_primary(members: Members) -> None:
    old, new = members.pair()
    new.promote(at_least=7)
    document, found = asked(f"amqp://{old.address},{new.address}")
    assert (document["primary"], document["generation"]) == (new.url, 7)
    assert (found[old.url]["kind"], found[old.url]["primary"]) == ("stale-primary", False)
    assert "generation 1" in found[old.url]["why"]


def test_tls_and_the_sasl_mechanism_are_shown(members: Members, authority: Authority) -> None:
    member = members.start(
        "primary", role="primary", users={"joe": SECRET}, certificate=authority.issue("127.0.0.1")
    )
    url = f"amqps://joe:{SECRET.replace(' ', '%20')}@{member.address}"
    _, found = asked(url, "-o", f"tls_ca={authority.file}")
    assert found[member.url]["mechanism"] == "SCRAM-SHA-512-PLUS"
    assert found[member.url]["tls"].startswith("TLSv1")
    _, found = asked(url, code=1)
    assert found[member.url]["kind"] == "tls-verification"


def test_wrong_credentials_are_reported_and_not_shown(members: Members) -> None:
    member = members.start("primary", role="primary", users={"joe": SECRET})
    done = run("members", f"amqp://joe:hunter2@{member.address}")
    assert done.returncode == 1
    assert "SCRAM-SHA-512: Authentication failed" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_credentials_may_come_from_the_environment(members: Members) -> None:
    member = members.start("primary", role="primary", users={"joe": SECRET}, anonymous=False)
    variables = {"HACLIENT_USER": "joe", "HACLIENT_PASSWORD": SECRET}
    _, found = asked(f"amqp://{member.address}", **variables)
    assert found[member.url]["mechanism"] == "SCRAM-SHA-512"
    _, found = asked(f"amqp://jim:x@{member.address}", code=1, **variables)
    assert found[member.url]["kind"] == "authentication"


def test_a_silent_tls_listener_and_a_name_without_address_have_their_reasons(members: Members) -> None:
    member = members.start("plain", role="primary")
    member.pause()
    url = f"failover:(amqps://{member.address},amqp://nowhere.invalid)"
    nameserver = f"nameserver={member.address}"  # an address without a listening UDP port
    _, found = asked(url, "-o", nameserver, "--timeout", "0.4", code=1)
    member.resume()
    assert "TLS handshake" in found[f"amqps://{member.address}"]["why"]
    assert found["amqp://nowhere.invalid:5672"]["kind"] == "unresolved"


@pytest.mark.slow
def test_quiet_prints_nothing(members: Members) -> None:
    primary, _ = members.pair()
    done = run("members", "-q", f"amqp://{primary.address}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    primary.kill()
    done = run("members", "-q", "--json", f"amqp://{primary.address}")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("timeout", ["0", "-1", "x"])
def test_a_timeout_that_is_none_is_refused(timeout: str) -> None:
    assert run("members", "amqp://127.0.0.1", "--timeout", timeout).returncode == 2


def test_nobody_there_is_reported_at_once() -> None:
    (free,) = free_addresses((Endpoint("127.0.0.1", 0),))
    document, _ = asked(f"amqp://{free.authority}", code=1)
    assert document["seconds"] < 3
