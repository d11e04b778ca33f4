"""No command prints a control character or a forged line that a peer puts into its fields."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import proton
import pytest

from haclient.outcome import Outcome, OutcomeState
from haclient.testing.threads import in_thread
from tests.cli.command import HACLIENT, PATIENCE, environment, run
from tests.cli.hostile import EVIL, assert_printable
from tests.peers.primary import Primary, primary

pytestmark = pytest.mark.slow  # a process for each text

SERVER_LIST = [{proton.symbol("network-host"): EVIL, proton.symbol("port"): 5672}]
PROPERTIES = {
    "product": EVIL,
    "version": EVIL,
    "haclient:cluster": EVIL,
    "haclient:role": EVIL,
    "failover-server-list": SERVER_LIST,
}
CONDITION = proton.Condition(f"amqp:{EVIL}", EVIL)
REJECTED = Outcome(OutcomeState.REJECTED, f"amqp:{EVIL}", EVIL)
REDIRECT = proton.Condition(
    "amqp:connection:redirect", EVIL, {proton.symbol("network-host"): EVIL, proton.symbol("port"): 5672}
)


@contextmanager
def hostile(**facts: Any) -> Iterator[tuple[Primary, str]]:
    with in_thread(primary(**{"container_id": EVIL, "properties": PROPERTIES, **facts})) as peer:
        yield peer, f"amqp://{peer.address}"


def said(*arguments: str, text: str = "") -> str:
    done = run(*arguments, text=text, HACLIENT_BACKOFF_BASE="0.01", PYTHONUTF8="1")
    assert "Traceback" not in done.stderr, done.stderr
    assert_printable(done.stdout)
    assert_printable(done.stderr)
    return done.stdout + done.stderr


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("refusal", [None, CONDITION, REDIRECT], ids=["serves", "refuses", "redirects"])
def test_members(refusal: proton.Condition | None, form: tuple[str, ...]) -> None:
    with hostile(refuses_opens=refusal) as (_, url):
        assert "FORGED" in said("members", url, *form) or refusal is REDIRECT


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("refusal", [CONDITION, REDIRECT], ids=["refuses", "redirects"])
def test_watch(refusal: proton.Condition, form: tuple[str, ...]) -> None:
    with hostile(refuses_opens=refusal) as (_, url):
        said("watch", url, "--count", "4", *form)


@pytest.mark.parametrize("more", [(), ("--verbose",), ("--json",)])
@pytest.mark.parametrize(
    "facts",
    [{"refuses": {"q": CONDITION}}, {"outcome": REJECTED}, {"refuses_opens": CONDITION}],
    ids=["attach", "outcome", "open"],
)
def test_send(facts: dict[str, Any], more: tuple[str, ...]) -> None:
    with hostile(**facts) as (_, url):
        shown = said("send", f"{url}?max_attempts=2", "q", *more, text="one\n")
        assert "FORGED" in shown or more == ("--json",)


def test_move() -> None:
    with hostile(outcome=REJECTED) as (peer, url):
        peer.put("q", "one")
        assert "FORGED" in said("move", url, "q", "r", "--timeout", "0.3")


@pytest.mark.parametrize("body", [EVIL, {EVIL: EVIL}, [EVIL]], ids=["text", "map", "list"])
def test_receive_as_json(body: Any) -> None:
    with hostile() as (peer, url):
        peer.put("q", body)
        found = json.loads(said("receive", url, "q", "--json", "--count", "1", "-q"))
    assert found["body"] == body  # the value is unchanged


def test_receive_refused() -> None:
    with hostile(refuses={"q": CONDITION}) as (_, url):
        assert "FORGED" in said("receive", url, "q", "--count", "1")


@pytest.mark.parametrize("body", [EVIL, EVIL.encode(), b"\xff\x1b[31m"], ids=["text", "data", "bytes"])
def test_receive_on_a_terminal_and_into_a_pipe(body: Any) -> None:
    with hostile() as (peer, url):
        peer.put("q", body, body)
        raw = subprocess.run(
            [HACLIENT, "receive", url, "q", "--count", "1", "-q"],
            capture_output=True,
            timeout=PATIENCE,
            check=True,
            env=environment(),
        ).stdout
        assert raw == (body if isinstance(body, bytes) else body.encode()) + b"\n"
        shown = on_terminal("receive", url, "q", "--count", "1", "-q")
    assert_printable(shown)


def on_terminal(*arguments: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen([HACLIENT, *arguments], stdout=theirs, env=environment()) as process:
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:  # on Linux: the other end is closed
            pass
        assert process.wait(PATIENCE) == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def test_the_table_of_a_real_terminal_holds_no_control_character_of_a_peer() -> None:
    """The escapes for colours that the table itself prints are removed first."""
    with hostile() as (_, url):
        shown = on_terminal("members", url)
    assert "\x1b]" not in shown
    assert "\x9b" not in shown
    assert "FORGED" in shown
    assert "\nFORGED" not in shown


def test_telemetry_validate(tmp_path: Path) -> None:
    """The event type is chosen by the program that writes the telemetry."""
    line = {
        "specversion": "1.0",
        "id": "1",
        "source": "haclient",
        "type": f"io.haclient.{EVIL}",
        "time": "2026-01-01T00:00:00Z",
        "dataschema": "urn:haclient:telemetry:1",
        "data": {EVIL: EVIL},
    }
    (tmp_path / f"{EVIL[:9]}.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({EVIL: EVIL}) + "\n")
    assert "FORGED" in said("telemetry", "validate", str(tmp_path))
