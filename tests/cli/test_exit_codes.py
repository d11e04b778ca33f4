"""The table of exit codes, and a command that ends with each of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from proton import Condition

from haclient.cli import main, options
from haclient.cli.exit_codes import CODES, DONE, LESS, NO_PRIMARY, REFUSED, UNUSABLE, USAGE
from haclient.testing.threads import in_thread
from tests.cli.command import run
from tests.members import Members
from tests.peers import primary, url

COMMANDS = ("members", "send", "receive", "watch", "explain")
PAGE = Path(__file__).parents[2] / "docs" / "command.md"
NOWHERE = "amqp://127.0.0.1:1"


def test_the_help_has_the_table() -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    table = re.sub(r"\n {9}", " ", shown.split("Exit codes:")[1])
    rows = dict(re.findall(r"^ +(\d+) +(.+)$", table, re.MULTILINE))
    assert rows == {str(code): meaning for code, meaning in CODES.items()}
    assert (options.BROKEN, options.UNUSABLE) == (LESS, UNUSABLE)


def test_the_page_has_the_table_too() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE.read_text().replace("`", ""), re.MULTILINE)
    assert rows == [(str(code), meaning) for code, meaning in CODES.items()]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples_and_says_where_the_codes_are(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"]).stdout
    assert "--json" in shown
    assert "  Examples:\n" in shown
    assert f"    haclient {name} " in shown
    assert "Exit codes: see haclient --help." in shown


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://a", "unknown scheme 'http'"),
        ("amqp://a?deadlin=5", "did you mean 'deadline'"),
        ("amqp://u:hunter2@a:x", "a port is a number"),
        ("amqp://u:hunter2@a;amqp://b", "between two members stands a comma: write amqp://host:port,amqp://"),
        ("None", "a cluster URL starts with amqp:// or amqps://"),
    ],
)
def test_a_wrong_url_is_2_and_shows_no_password(name: str, url: str, part: str) -> None:
    address = ["orders"] if name in {"send", "receive"} else []
    done = CliRunner(env={"HACLIENT_URL": None}).invoke(main, [name, url, *address])
    assert done.exit_code == USAGE
    assert part in done.stderr
    assert done.stderr.endswith("More: haclient help bad-url\n")
    assert "hunter2" not in done.output


USAGES = [
    (["members"], "set HACLIENT_URL"),
    (["members", "amqp://a", "-o", "deadline"], "is not like deadline=30"),
    (["members", "amqp://a", "-o", "deadlin=5"], "did you mean 'deadline'"),
    (["members", "amqp://a", "-o", "tls_ca=/nowhere.pem"], "/nowhere.pem"),
    (["send", "amqp://a"], "ADDRESS is missing"),
    (["send", "amqp://a", ""], "ADDRESS is empty"),
    (["send", "amqp://a", "b", "c"], "there are 3 arguments"),
    (["send", "orders"], "set HACLIENT_URL"),
    (["send", "amqp://a", "b", "-p", "x"], "is not like NAME=TEXT"),
    (["send", "amqp://a", "b", "--capability", ""], "capabilities: '' is no symbol (ASCII text)"),
    (["receive", "amqp://a", "b", "--capability", "käse"], "'käse' is no symbol (ASCII text)"),
    (["receive", "amqp://a", "b", "-n", "0"], "range"),
    (["watch", "amqp://a", "--duration", "0"], "range"),
    (["receive"], "Missing argument"),
]


@pytest.mark.parametrize(("arguments", "part"), USAGES)
def test_wrong_usage_is_2(arguments: list[str], part: str) -> None:
    done = CliRunner(env={"HACLIENT_URL": None, "HACLIENT_CONFIG": None}).invoke(main, arguments)
    assert done.exit_code == USAGE
    assert part in done.stderr


@pytest.mark.slow
def test_0_and_5(members: Members) -> None:
    primary = members.start("primary", role="primary", users={"joe": "right"})
    assert run("send", primary.url, "orders", "-m", "x").returncode == DONE
    wrong = primary.url.replace("://", "://joe:wrong@")
    done = run("send", wrong, "orders", "-m", "x")
    assert done.returncode == REFUSED
    assert "authentication failed" in done.stderr
    assert "it does not accept the user and the password" in done.stderr
    assert done.stderr.endswith("More: haclient help authentication\n")
    assert "wrong" not in done.stderr
    done = run("receive", primary.url, "$nothing", "-n", "1")
    assert done.returncode == REFUSED
    assert "$nothing" in done.stderr


@pytest.mark.parametrize(
    ("condition", "code"), [("amqp:not-allowed", "not-allowed"), ("amqp:unauthorized-access", "unauthorized")]
)
def test_5_for_a_connection_that_every_member_refuses(condition: str, code: str) -> None:
    """The command ends at once and prints the member's error text."""
    with in_thread(primary(refuses_opens=Condition(condition, "not from there"))) as peer:
        done = run("send", url(peer), "orders", "-m", "x")
        assert peer.refused == 1
    assert done.returncode == REFUSED
    assert f"{condition}: not from there" in done.stderr
    assert done.stderr.endswith(f"More: haclient help {code}\n")


def test_1_3_and_4(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("members", NOWHERE).returncode == LESS
    assert run("send", NOWHERE, "orders", "-m", "x", "-o", "max_attempts=1").returncode == NO_PRIMARY
    done = run("send", f"{NOWHERE}?backoff_base=0.01&backoff_max=0.01&max_attempts=9", "orders", "-m", "x")
    assert done.returncode == NO_PRIMARY
    first, figures, error, line, *_ = done.stderr.splitlines()
    assert first == "no primary yet: amqp://127.0.0.1:1: connection refused; the search goes on"
    assert figures.startswith("accepted 0 in ")
    assert error.startswith("Error: no primary was found: ")
    assert line.startswith("  amqp://127.0.0.1:1: 9 times connection refused; last ")
    monkeypatch.setitem(sys.modules, "haclient.cli.commands.members", None)
    done = CliRunner().invoke(main, ["members", NOWHERE])
    assert done.exit_code == UNUSABLE
    assert "members cannot run here" in done.stderr
