"""``haclient send --json`` names the line that it cannot send, after sending the lines before it."""

from __future__ import annotations

import pytest

from haclient.cli.exit_codes import UNUSABLE
from haclient.testing.threads import in_thread
from tests.cli.command import run
from tests.peers import primary, url


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"body": 1267650600228229401496703205376}', "AMQP"),
        ('{"body": "\\ud800"}', "a str with a surrogate"),
        ('{"body": ' + "[" * 3000 + "]" * 3000 + "}", "it is nested too deeply"),
        ('{"subject\\u001b[31m": 1}', "field 'subject\\x1b[31m' is none of"),
    ],
    ids=["number", "surrogate", "depth", "control-character"],
)
def test_a_line_that_cannot_be_sent_is_named_and_the_lines_before_are_sent(line: str, reason: str) -> None:
    with in_thread(primary()) as peer:
        done = run("send", url(peer), "orders", "--json", "-q", text=f'{{"body": "one"}}\n{line}\n')
        assert peer.bodies == ["one"]
    assert done.returncode == UNUSABLE, done.stderr
    assert "Traceback" not in done.stderr
    assert "Error: line 2: " in done.stderr
    assert reason in done.stderr
