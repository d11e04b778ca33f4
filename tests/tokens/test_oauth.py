"""Tokens by client credentials: what is asked, what is shared, and what happens when the provider fails."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haclient.tokens import ClientCredentials, TokenFile, TokenRequestError
from tests.certificates import Authority
from tests.tokens.http_server import Server, serving


def issued(value: str, **fields: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps({"access_token": value, **fields}).encode()


def refused(status: int, **fields: object) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps(fields).encode()


def test_the_request_is_that_of_the_specification() -> None:
    with serving(issued("first", expires_in=300, token_type="Bearer")) as server:
        supply = ClientCredentials(server.url, "my app", "a:b%c", scope="one two", audience="brokers")
        before = time.time()
        token = supply()
    (asked,) = server.asked
    assert asked.form == {
        "grant_type": ["client_credentials"],
        "scope": ["one two"],
        "audience": ["brokers"],
    }
    kind, _, encoded = asked.headers["Authorization"].partition(" ")
    assert kind == "Basic"
    assert [unquote(part) for part in base64.b64decode(encoded).decode().split(":")] == ["my app", "a:b%c"]
    assert token.value == "first"
    assert token.expiry is not None
    assert before + 300 <= token.expiry <= time.time() + 300
    assert "a:b" not in repr(supply)


def test_many_threads_share_a_young_token() -> None:
    with serving(issued("first", expires_in=300)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        threads = [threading.Thread(target=supply) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.asked) == 1


def test_a_token_past_its_half_life_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    with serving(issued("first", expires_in=300), issued("second", expires_in=300)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        supply()
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 140)
        assert supply().value == "first"
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 160)
        assert supply().value == "second"


def test_the_last_token_serves_while_the_provider_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time
    with serving(issued("first", expires_in=300), refused(503)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        supply()
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 200)
        with caplog.at_level(logging.WARNING, "haclient"):
            assert supply().value == "first"
            assert [supply().value for _ in range(20)] == ["first"] * 20
            assert len(server.asked) == 2  # not at each attempt
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 301)
        with pytest.raises(OSError, match="503"):
            supply()
    assert "the last one is used" in caplog.text


def test_a_provider_that_refuses_is_one_clear_error() -> None:
    answer = refused(401, error="invalid_client", error_description="unknown program")
    with (
        serving(answer) as server,
        pytest.raises(TokenRequestError, match="issues no token: invalid_client: unknown program") as caught,
    ):
        ClientCredentials(server.url, "app", "the-secret")()
    assert "the-secret" not in str(caught.value)
    assert caught.value.code == "token-request"


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[" * 100_000),
        (200, {}, b"[]"),
        (200, {}, b"{}"),
        issued(""),
        issued("with\nnewline"),
        issued("a", expires_in="soon"),
        issued("a", expires_in=[]),
        issued("a" * 70_000),
        (200, {"Content-Length": "1000"}, b'{"access_token": "cut-off"}'),
        (200, {}, b'{"access_token": "large", "more": "' + b"x" * (1 << 20) + b'"}'),
        refused(500),
        refused(429),
    ],
)
def test_an_answer_without_a_token_is_asked_for_again(answer: tuple[int, dict[str, str], bytes]) -> None:
    with serving(answer) as server, pytest.raises(OSError):  # noqa: PT011 - many texts
        ClientCredentials(server.url, "app", "secret")()


@settings(max_examples=30, deadline=None)
@given(st.integers(400, 499).filter(lambda status: status != 429), st.binary(max_size=200))
def test_any_refusal_is_a_clear_error(status: int, body: bytes) -> None:
    with serving((status, {}, body)) as server, pytest.raises(TokenRequestError, match="issues no token"):
        ClientCredentials(server.url, "app", "secret")()


def test_nobody_listens() -> None:
    with pytest.raises(OSError, match="refused"):
        ClientCredentials("http://127.0.0.1:9/token", "app", "secret")()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    answer = issued("other", expires_in=300)
    with (
        serving(answer) as other,
        serving((status, {"Location": other.url}, b"")) as server,
        pytest.raises(TokenRequestError, match=str(status)),
    ):
        ClientCredentials(server.url, "app", "secret")()
    assert not other.asked


def test_no_proxy_sees_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS it could read it."""
    with serving(issued("by the proxy")) as proxy, serving(issued("here")) as server:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert ClientCredentials(server.url, "app", "secret")().value == "here"
    assert not proxy.asked


def test_the_provider_is_verified(authority: Authority) -> None:
    with serving(issued("first"), certificate=authority.issue("127.0.0.1")) as server:
        ours = authority.client_context()
        assert ClientCredentials(server.url, "app", "secret", ssl_context=ours)().value == "first"
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            ClientCredentials(server.url, "app", "secret")()
    assert len(server.asked) == 1


DRIPS = {
    "a status line": (b"", b"H"),
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "endless 100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", b" "),
    "the body of a refusal": (b"HTTP/1.1 401 No\r\nContent-Length: 1000000\r\n\r\n", b" "),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_provider_that_answers_a_byte_at_a_time_is_given_up(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, drip = DRIPS[what]
    monkeypatch.setattr("haclient.tokens.oauth._TIMEOUT", 0.3)
    ended = threading.Event()

    def answer() -> None:
        with listener.accept()[0] as client, contextlib.suppress(OSError):
            client.sendall(begin)
            while not ended.wait(0.01):
                client.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises((OSError, TokenRequestError)):
                ClientCredentials(f"http://127.0.0.1:{listener.getsockname()[1]}", "app", "secret")()
        finally:
            ended.set()
            thread.join()


def test_a_clock_that_is_set_back_does_not_keep_an_old_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(issued("first", expires_in=300), issued("second", expires_in=300)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        now, monotonic = time.time, time.monotonic
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 5 * 3600)
        assert supply().value == "first"
        monkeypatch.setattr("haclient.tokens.oauth.time.time", now)
        assert supply().value == "first"
        monkeypatch.setattr("haclient.tokens.oauth.time.monotonic", lambda: monotonic() + 151)
        assert supply().value == "second"


def test_a_token_without_a_life_is_shared_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    with serving(issued("first"), issued("second")) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        assert {supply().value for _ in range(10)} == {"first"}
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 61)
        assert supply().value == "second"


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.001)


@contextlib.contextmanager
def asking(supply: ClientCredentials, server: Server) -> Iterator[None]:
    """Let a thread wait for the answer of the provider meanwhile."""
    server.may_answer.clear()
    before = len(server.asked)
    thread = threading.Thread(target=supply)
    thread.start()
    wait_until(lambda: len(server.asked) > before)
    try:
        yield
    finally:
        server.may_answer.set()
        thread.join()


def test_a_child_of_a_process_that_asks_asks_by_itself() -> None:
    """The thread that has the lock is not there after the fork."""
    with serving(issued("first", expires_in=300)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        with asking(supply, server):
            readable, writable = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(writable, supply().value.encode())
                finally:
                    os._exit(0)
            try:
                wait_until(lambda: len(server.asked) >= 2)
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise
            finally:
                server.may_answer.set()
                os.waitpid(child, 0)
        assert os.read(readable, 100) == b"first"


def test_whoever_waits_too_long_for_another_thread_gets_the_last_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time
    with serving(issued("first", expires_in=300), issued("second", expires_in=300)) as server:
        supply = ClientCredentials(server.url, "app", "secret")
        supply()
        monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 200)
        with asking(supply, server):
            monkeypatch.setattr("haclient.tokens.oauth._TIMEOUT", 0.05)
            assert supply().value == "first"
            monkeypatch.setattr("haclient.tokens.oauth.time.time", lambda: now() + 400)
            with pytest.raises(OSError, match="another thread waits"):
                supply()


@pytest.mark.parametrize(
    "url", ["http://id.example/token", "ftp://id.example/token", "id.example", "https://a:b@id.example", ""]
)
def test_a_url_that_would_show_the_secret_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="token_url"):
        ClientCredentials(url, "app", "secret")


def test_a_file_of_a_token_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    supply = TokenFile(path, user="app")
    with pytest.raises(FileNotFoundError):
        supply()
    path.write_text("")
    with pytest.raises(OSError, match="1 to 60000 characters"):
        supply()
    path.write_text("first\n")
    assert (supply().value, supply().user) == ("first", "app")
    path.write_text("second")
    assert supply().value == "second"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OSError, match="no token has"):
        supply()
