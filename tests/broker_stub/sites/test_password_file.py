"""A link's password is in a file of its members, and in no other place."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_stub.admission.user_file import DEFAULT_ADMIN, write_users
from broker_stub.broker import Broker
from broker_stub.queueing.exchanges import ExchangeType
from broker_stub.sites.password_file import PasswordFileError, PasswordFiles
from broker_stub.sites.source_config import FROM, PASSWORD_FILE, SourceConfig, SourceConfigError
from haclient.cluster_url.endpoint import Endpoint
from tests.broker_stub.clients import member, running, until
from tests.broker_stub.commands import json_of, manage
from tests.broker_stub.replication.cluster import ADMIN, send
from tests.broker_stub.rogue import rogue
from tests.broker_stub.sites.clusters import (
    LINK,
    NAME,
    PASSWORD,
    Sites,
    as_user,
    fail_over,
    sites,
    write_password,
)

_SOON = "backoff_base=0.02&backoff_max=0.2&heartbeat=2"
_NEW_PASSWORD = "the secret that was planted"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("users")
    write_users(directory / "users", {ADMIN.user: ADMIN.password, NAME: PASSWORD})
    return directory / "users"


@pytest.fixture
async def source(users: Path, tmp_path: Path) -> AsyncIterator[Endpoint]:
    async with member(tmp_path, "--users", str(users), "--role", "primary", "--link-user", NAME) as address:
        yield address


def follow(broker: Broker, url: str, file: Path | str) -> None:
    options = {FROM: url, PASSWORD_FILE: str(file)}
    broker.addresses.declare_exchange(LINK, ExchangeType.REPLICATION, options=options)


def link(broker: Broker) -> dict[str, Any]:
    [facts] = broker.site.status()["links"]
    return dict(facts)


def refused(error: str) -> bool:
    """Return whether the source refused the password, at once or later with an unchanged one."""
    return "Authentication failed" in error or "the credentials that were refused here" in error


# -- files ------------------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_text("\nbehind the first line\n")


def open_to_others(path: Path) -> None:
    path.chmod(0o604)


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\n")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


def a_link_to_a_secret(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def writable_by_the_group(path: Path) -> None:
    path.chmod(0o660)


def in_a_directory_of_others(path: Path) -> None:
    path.parent.chmod(0o777)


def in_a_linked_directory(path: Path) -> None:
    moved = path.parent.rename(path.parent.parent / "moved")
    path.parent.symlink_to(moved)


def endless(path: Path) -> None:
    path.write_text("x" * 10_000)


_PROBLEMS = [
    (missing, "cannot be read: No such file"),
    (empty, "the first line of .* is empty"),
    (open_to_others, r"is open to others \(mode 0604\): chmod 600"),
    (binary, "is not UTF-8 text"),
    (a_pipe, "is no regular file"),
    (a_folder, "is no regular file"),
    (endless, "more than 4096 bytes"),
    (a_link_to_a_secret, "is a symbolic link"),
    (writable_by_the_group, r"is open to others \(mode 0660\)"),
    (in_a_directory_of_others, r"others may write to it \(mode 0777\): chmod 700"),
    (in_a_linked_directory, "it is a symbolic link"),
]


@pytest.mark.parametrize(("problem", "reason"), _PROBLEMS)
def test_a_file_that_holds_no_secret_is_refused(
    tmp_path: Path, problem: Callable[[Path], None], reason: str
) -> None:
    directory = tmp_path / "passwords"
    directory.mkdir(mode=0o700)
    path = write_password(directory / "password", "one")
    problem(path)
    with pytest.raises(PasswordFileError, match=reason) as refused:
        PasswordFiles(directory).read(str(path))
    assert "one" not in str(refused.value).replace("no such", "").split()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_belongs_to_another_user_is_not_read(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "passwords"
    directory.mkdir(mode=0o700)
    path = write_password(directory / "password", "one")
    other = os.geteuid() + 1
    if os.geteuid() == 0:
        os.chown(path if what == "file" else directory, other, -1)
    else:  # only root may give files away: then this process is the other user
        path.parent.chmod(0o700 if what == "directory" else 0o711)
        monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(PasswordFileError, match=r"belongs to user \d+.*chown"):
        PasswordFiles(directory).read(str(path))


@pytest.mark.parametrize(
    "name", ["../elsewhere", "below/password", "", ".", "..", "/etc/hostname", "password/../../elsewhere"]
)
def test_nothing_outside_of_the_directory_is_read(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "passwords"
    (directory / "below").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    write_password(directory / "below" / "password", "one")
    write_password(tmp_path / "elsewhere", "one")
    write_password(directory / "password", "one")
    for path in (f"{directory}/{name}", name):
        with pytest.raises(PasswordFileError, match=r"is not in .*passwords|no regular file"):
            PasswordFiles(directory).read(path)
    with pytest.raises(PasswordFileError, match="started without --link-passwords DIR"):
        PasswordFiles().read(str(directory / "password"))


def test_a_file_that_is_exchanged_while_it_is_read_never_gives_what_it_points_to(tmp_path: Path) -> None:
    secret = write_password(tmp_path / "secret", "the secret")
    directory = tmp_path / "passwords"
    directory.mkdir(mode=0o700)
    path = write_password(directory / "password", "the password")
    (directory / "link").symlink_to(secret)
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            for name in ("link", "file"):
                spare = directory / f"spare-{name}"
                if name == "link":
                    spare.symlink_to(secret)
                else:
                    write_password(spare, "the password")
                spare.replace(path)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        read: Counter[str] = Counter()
        while read["the password"] < 200 or read["refused"] < 200:
            try:
                read[PasswordFiles(directory).read(str(path))] += 1
            except PasswordFileError:
                read["refused"] += 1
    finally:
        ended.set()
        thread.join()
    assert read.keys() == {"the password", "refused"}


def test_the_password_is_the_first_line(tmp_path: Path) -> None:
    path = write_password(tmp_path / "password", "p\u00e4ss w\u00f6rd\r\nmore")
    path.chmod(0o640)
    assert PasswordFiles(tmp_path).read(str(path)) == "p\u00e4ss w\u00f6rd"


# -- stored passwords --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "file", "reason"),
    [
        ("amqp://u:secret@a,b", None, "no password in it.*--from-password-file"),
        ("failover:(amqp://a,amqp://u:secret@b)", None, "no password in it"),
        ("amqp:u/secret@tcp:a:5672", None, "no password in it"),
        ("amqp://u:secret@a", "/run/secret", "no password in it"),
        ("amqp://a,b", "/run/secret", "belongs to one user"),
        ("failover:(amqp://u@a,amqp://v@b)", "/run/secret", "belongs to one user"),
        ("amqp://u@a", "run/secret", "whole path"),
        ("amqp://u@a", "/run/\0", "whole path"),
        ("amqp://u@a/?dr=b", "/run/secret", "follows one site"),
        ("http://a", None, "unknown scheme"),
        (None, "/run/secret", "no source"),
    ],
)
def test_what_cannot_be_stored_is_refused_without_a_word_of_it(
    url: str | None, file: str | None, reason: str
) -> None:
    given = ((FROM, url), (PASSWORD_FILE, file))
    with pytest.raises(SourceConfigError, match=reason) as refused:
        SourceConfig.of({name: value for name, value in given if value is not None})
    assert "secret@" not in str(refused.value)


async def test_the_commands_refuse_a_password_in_the_url() -> None:
    url, nowhere = "amqp://u:planted@a", "amqp://127.0.0.1:1"
    for command in (
        ("link", "add", LINK, "--from", url, "--to", nowhere),
        ("site", "fail-back", LINK, "--from", url, "--at", nowhere, "--to", nowhere),
    ):
        refused = await manage(*command)
        assert (refused.exit_code, "--from-password-file PATH" in refused.stderr) == (2, True)
        assert "planted" not in refused.output


async def test_a_link_shows_a_rogue_source_nothing_of_its_password(tmp_path: Path) -> None:
    password = "z!Q?7#w~Vk$3^p;M|x@9"
    async with (
        rogue("PLAIN", "ANONYMOUS") as other,
        running(password_files=PasswordFiles(tmp_path)) as broker,
    ):
        path = write_password(tmp_path / "password", password)
        follow(broker, as_user(f"{other.address}/?sasl_mechanisms=PLAIN&{_SOON}"), path)
        await until(lambda: "may use SCRAM-SHA-256" in link(broker)["error"])
    assert other.heard
    assert not other.knows_of(password)


async def test_a_link_that_an_older_version_stored_with_a_password_does_not_begin() -> None:
    async with running() as broker:
        options = {FROM: "amqp://u:planted@127.0.0.1:1"}
        broker.addresses.declare_exchange(LINK, ExchangeType.REPLICATION, options=options)
        facts = link(broker)
        assert facts["state"] == "stopped"
        assert "--from-password-file" in facts["error"]
        assert "planted" not in str(broker.status())


@pytest.mark.slow
async def test_the_management_node_refuses_a_file_that_no_link_may_read(tmp_path: Path) -> None:
    """With ``--from`` and a path an admin could otherwise send any file of the server anywhere."""
    write_users(tmp_path / "users", {ADMIN.user: ADMIN.password})
    passwords = tmp_path / "passwords"
    passwords.mkdir(mode=0o700)
    secret = write_password(tmp_path / "secret", "planted")
    (passwords / "link").symlink_to(secret)
    connected: list[object] = []
    trap = await asyncio.start_server(lambda *streams: connected.append(streams), "127.0.0.1", 0)
    async with trap:
        port = trap.sockets[0].getsockname()[1]
        arguments = ("--users", str(tmp_path / "users"), "--role", "primary")
        for given, path, reason in (
            ((), secret, "started without --link-passwords DIR"),
            (("--link-passwords", str(passwords)), secret, f"is not in {passwords}"),
            (("--link-passwords", str(passwords)), passwords / "link", "is a symbolic link"),
            (("--link-passwords", str(passwords)), passwords / "gone", "cannot be read: No such file"),
        ):
            async with member(tmp_path, *arguments, *given) as address:
                way = ("--from", f"amqp://u@127.0.0.1:{port}", "--from-password-file", str(path))
                refused = await manage("link", "add", LINK, *way, "--to", str(address))
                assert (refused.exit_code, reason in refused.stderr) == (1, True), refused.output
                assert await json_of("link", "list", str(address)) == []
                assert "planted" not in refused.output
    assert not connected


# -- links ------------------------------------------------------------------------------------------


async def test_what_is_wrong_with_the_file_is_the_links_error_until_it_is_not(
    tmp_path: Path, source: Endpoint
) -> None:
    url = as_user(f"{source}/?{_SOON}")
    async with running(password_files=PasswordFiles(tmp_path)) as broker:
        path = write_password(tmp_path / "password")
        missing(path)
        follow(broker, url, path)
        await until(lambda: "No such file" in link(broker)["error"])
        write_password(path)
        open_to_others(path)
        await until(lambda: "is open to others" in link(broker)["error"])
        assert link(broker)["state"] == "connecting"
        path.chmod(0o600)
        await until(lambda: link(broker)["state"] == "connected")
        await until(lambda: not link(broker)["error"])


async def test_a_wrong_password_is_reported_and_the_right_one_is_used_as_soon_as_it_is_there(
    tmp_path: Path, source: Endpoint
) -> None:
    async with running(password_files=PasswordFiles(tmp_path)) as broker:
        path = write_password(tmp_path / "password", "wrong")
        follow(broker, as_user(f"{source}/?{_SOON}"), path)
        await until(lambda: refused(link(broker)["error"]))
        assert "wrong" not in link(broker)["error"]
        write_password(path)
        await until(lambda: link(broker)["state"] == "connected")


async def test_a_link_as_cluster_admin_is_served_by_the_primary(
    tmp_path: Path, users: Path, source: Endpoint
) -> None:
    elsewhere = ("--users", str(users), "--primary", source.authority)
    (tmp_path / "passive").mkdir()
    async with (
        member(tmp_path / "passive", *elsewhere) as passive,
        running(password_files=PasswordFiles(tmp_path)) as broker,
    ):
        url = f"amqp://{DEFAULT_ADMIN}@{passive.authority},{source.authority}/?{_SOON}"
        follow(broker, url, write_password(tmp_path / "password", ADMIN.password))
        await until(lambda: link(broker)["state"] == "connected")


def reported_by(both: Sites) -> bytes:
    """Return all logs and telemetry of both members of the DR site."""
    files = [path for each in both.dr.members for path in each.store.rglob("*") if path.is_file()]
    assert len(files) >= 2, "each has a store"
    logs = [each.log_file for each in both.dr.members]
    return b"".join(path.read_bytes() for path in (*files, *logs, *both.telemetry.rglob("*.jsonl")))


@pytest.mark.slow
async def test_a_rotated_password_is_used_and_written_down_nowhere(tmp_path: Path) -> None:
    async with sites(tmp_path) as both:
        (a, _), (c, d) = await asyncio.gather(both.source.pair(), both.dr.pair())
        await json_of("queue", "add", "orders", both.source.url, "--site-replicate", "all")
        way = ("--from", as_user(both.url), "--from-password-file", str(both.password_file))
        await json_of("link", "add", LINK, *way, "--to", both.dr.url)
        await send(a, "orders", 1)
        await both.equal()
        await asyncio.to_thread(write_users, tmp_path / "source" / "users", {NAME: _NEW_PASSWORD})
        await fail_over(both.source)
        await c.until(lambda status: refused(status.facts["site"]["links"][0]["error"]))
        write_password(both.password_file, _NEW_PASSWORD)
        await fail_over(both.dr)
        successor = both.source.members[1]
        await send(successor, "orders", 2)
        await both.equal()
        assert await d.depth("orders") == 2
        status = await manage("status", "--json", c.address.authority, d.address.authority)
        assert str(both.password_file) in status.output
        written = reported_by(both)
        assert str(both.password_file).encode() in written
        for secret in (PASSWORD, _NEW_PASSWORD):
            assert secret not in status.output
            assert secret.encode() not in written
