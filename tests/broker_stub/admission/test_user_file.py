"""The file of users: its lines, its errors, and what happens when it changes."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.admission import user_file
from broker_stub.admission.user_file import DEFAULT_ADMIN, UserFile, UserFileError, write_users
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import Credentials, aio
from haclient.cluster_url.endpoint import Endpoint
from haclient.engine.sasl.server_mechanisms import RefusedLogin, Scram
from haclient.engine.sasl.users import DIGESTS, derive
from haclient.errors import AuthenticationFailed
from tests.broker_stub.clients import Client, member
from tests.broker_stub.commands import run
from tests.counted_calls import counted_calls

SCRAM = tuple(DIGESTS)
# Made by Dovecot 2.3.19: doveadm pw -s SCHEME -p PASSWORD.
OF_DOVECOT = {
    "{SCRAM-SHA-256}4096,epXd/Sz6ag9NVVIRgiPqGQ==,A4Lsv9bztQpd5BEa9CVGuKJwWf+7le6OTOszk3rLexY=,"
    "KSFqWxEXoeHvOL3Otfxig5CxUYJORi9rrVHcVv+dAtA=": "wonder \N{GRINNING FACE}",
    "{SCRAM-SHA-1}4096,y+JG0V3guKqSU2uwuj9eIA==,lkyKbduoPwXWIFPMJMmtpwB/e1E=,Z8lw9fRUfIt2g6iwIP1bAsjgoyc=": (
        "wonder"
    ),
}
_KEY = base64.b64encode(bytes(32)).decode()


def of_lines(folder: Path, *lines: str) -> UserFile:
    path = folder / secrets.token_hex(8)
    path.write_text("\n".join(lines))
    return UserFile(path)


def knows(users: UserFile, mechanism: str, name: str, password: str) -> bool:
    keys = users.keys(mechanism, name)
    return derive(mechanism, password, keys.salt, keys.iterations) == keys


@pytest.mark.parametrize(("value", "password"), OF_DOVECOT.items())
def test_lines_of_dovecot_are_read(tmp_path: Path, value: str, password: str) -> None:
    users = of_lines(tmp_path, f"bob:{value}")
    (mechanism,) = users.mechanisms
    assert knows(users, mechanism, "bob", password)
    assert not knows(users, mechanism, "bob", password + "x")
    assert not knows(users, mechanism, "Bob", password)


@given(password=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).map(str.strip))
def test_a_line_has_the_keys_of_its_password_and_never_the_password(
    password: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if not password:
        return
    made = user_file.line("bob", password)
    users = of_lines(tmp_path_factory.mktemp("users"), "", made, "")
    assert users.mechanisms == ("SCRAM-SHA-256",)
    assert knows(users, "SCRAM-SHA-256", "bob", password)
    assert user_file.line("bob", password) != made


def test_a_password_has_the_keys_of_every_mechanism(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder", "bob:{not a mechanism}:x")
    assert users.mechanisms == SCRAM
    for mechanism in SCRAM:
        assert knows(users, mechanism, "alice", "wonder")
        assert knows(users, mechanism, "bob", "{not a mechanism}:x")


def test_what_is_offered_is_what_every_user_has(tmp_path: Path) -> None:
    made = [user_file.line("bob", "builder", mechanism) for mechanism in SCRAM]
    assert of_lines(tmp_path, "alice:wonder", made[1]).mechanisms == SCRAM[1:2]
    assert of_lines(tmp_path, "alice:wonder", *made[:2]).mechanisms == SCRAM[:2]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([""], "there are no users"),
        (["alice"], "line 1: name:password is expected"),
        (["alice:"], "line 1: name:password is expected"),
        ([":secret"], "line 1: name:password is expected"),
        (["a:secret", "", "a:secret"], "line 3: 'a' has a password already"),
        (["a:{SCRAM-SHA-256}secret"], r"line 1: {SCRAM-SHA-256}ITERATIONS,SALT,STORED-KEY,SERVER-KEY is exp"),
        (["a:{SCRAM-SHA-256}4096,secret,secret,secret"], "line 1: {SCRAM-SHA-256}ITERATIONS,SALT"),
        (["a:{SCRAM-SHA-224}4096,secret"], "line 1: {SCRAM-SHA-224} is none of SCRAM-SHA-512"),
        (["a:{SCRAM-SHA-256}4096,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: a salt has 12 to 64 bytes"),
        (["a:{SCRAM-SHA-256}1,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must be 4096 to 65536"),
        (["a:{SCRAM-SHA-256}9" + "0" * 5000 + ",c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must"),
        (["a:{SCRAM-SHA-256}-4096,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must"),
        ([f"a:{{SCRAM-SHA-256}}4096,c2VjcmV0,{_KEY},{_KEY}"], "line 1: a salt has 12 to 64 bytes"),
        ([f"a:{{SCRAM-SHA-256}}4096,{_KEY}{_KEY[:-1]},{_KEY},{_KEY}"], "line 1: {SCRAM-SHA-256}ITERATIONS"),
        ([f"a:{{SCRAM-SHA-256}}4096,{'A' * 88},{_KEY},{_KEY}"], "line 1: a salt has 12 to 64 bytes"),
        (["a:{SSHA256}secret"], "line 1: {SSHA256} is none of SCRAM-SHA-512, SCRAM-SHA-256, SCRAM-SHA-1"),
        (["a:{scram-sha-256}secret"], "line 1: {scram-sha-256} is none of"),
        (["a:{SCRAM-SHA-256}000065536000000,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must"),
        (["a:" + min(OF_DOVECOT), "b:" + max(OF_DOVECOT)], "no mechanism has keys of every user"),
    ],
)
def test_a_wrong_file_is_refused_without_its_secrets(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(UserFileError) as caught:
        of_lines(tmp_path, *lines)
    assert why in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_file_that_is_no_text_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"a:\xff")
    for path in (tmp_path / "users", tmp_path / "missing", tmp_path):
        with pytest.raises(UserFileError, match=str(path)):
            UserFile(path)


def salts(users: UserFile, *names: str) -> list[bytes]:
    return [users.keys("SCRAM-SHA-256", name).salt for name in names]


def test_a_salt_depends_on_no_password(tmp_path: Path) -> None:
    """A stranger gets the salt of any name, and could try passwords against one that depended on them."""
    lines = ("alice:wonder", user_file.line("bob", "builder"))
    first, second = of_lines(tmp_path, *lines), of_lines(tmp_path, *lines)
    found = salts(first, "alice", "bob", "nobody")
    assert found == salts(first, "alice", "bob", "nobody")
    assert len(set(found)) == 3
    assert [salt in found for salt in salts(second, "alice", "bob", "nobody")] == [False, True, False]


def test_no_salt_changes_when_the_file_does(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder", user_file.line("bob", "builder"))
    (path,) = tmp_path.iterdir()
    found = salts(users, "alice", "bob", "nobody")
    change(users, path, path.read_text() + "\ncarol:x\n")
    assert knows(users, "SCRAM-SHA-256", "carol", "x")
    assert salts(users, "alice", "bob", "nobody") == found


def change(users: UserFile, path: Path, text: str) -> None:
    """Change the file, and let the users read it as at a log-in."""
    path.write_text(text)
    os.utime(path, ns=(0, secrets.randbits(40)))
    look(users)


def look(users: UserFile) -> None:
    users._next_check = 0.0
    assert users.mechanisms
    if users._reader is not None:
        users._reader.join()


def calls(function: Callable[[], object]) -> int:
    with counted_calls() as found:
        function()
    return found.number


def test_every_name_costs_the_same_however_many_users_there_are(tmp_path: Path) -> None:
    keyed = user_file.line("bob", "builder").partition(":")[2]
    few, many = (of_lines(tmp_path, *(f"u{n}:{keyed}" for n in range(count))) for count in (1, 2_000))
    costs = {
        calls(partial(users.keys, "SCRAM-SHA-256", name))
        for users in (few, many)
        for name in ("u0", "nobody")
    }
    assert len(costs) == 1
    for users in (few, many):
        assert users.mechanisms
    assert calls(lambda: few.mechanisms) == calls(lambda: many.mechanisms)


def test_an_unknown_name_looks_like_some_user(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder", "bob:" + min(OF_DOVECOT).replace("4096", "5000", 1))
    (mechanism,) = users.mechanisms
    forms = [(4096, 16), (5000, 16)]
    found = {(keys.iterations, len(keys.salt)) for keys in (users.keys(mechanism, str(n)) for n in range(50))}
    assert found == set(forms)


def test_a_changed_file_is_read_again_and_a_wrong_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = of_lines(tmp_path, "alice:wonder")
    (path,) = tmp_path.iterdir()
    for text, password in (
        ("alice:other\n", "other"),
        ("alice\n", "other"),
        ("alice:third\n", "third"),
        ("alice:fou", "third"),
    ):
        change(users, path, text)
        assert knows(users, "SCRAM-SHA-256", "alice", password)
    path.unlink()
    look(users)
    look(users)
    assert knows(users, "SCRAM-SHA-256", "alice", "third")
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3
    assert "line 1: name:password is expected; the users stay as they were" in warnings[0]
    assert "the last line does not end" in warnings[1]


def test_a_file_is_read_once_for_each_change(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder")
    (path,) = tmp_path.iterdir()
    change(users, path, "alice:other\n")
    with patch.object(Path, "read_text", side_effect=OSError) as reading:
        look(users)
        look(users)
    reading.assert_not_called()
    assert knows(users, "SCRAM-SHA-256", "alice", "other")


def test_a_file_that_could_not_be_read_once_is_read_later(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder")
    (path,) = tmp_path.iterdir()
    with patch.object(Path, "read_text", side_effect=OSError("too many open files")):
        change_bytes = b"alice:other\n"
        path.write_bytes(change_bytes)
        look(users)
    assert knows(users, "SCRAM-SHA-256", "alice", "wonder")
    look(users)
    assert knows(users, "SCRAM-SHA-256", "alice", "other")


def test_a_client_that_began_with_a_mechanism_that_is_gone_is_refused(tmp_path: Path) -> None:
    users = of_lines(tmp_path, "alice:wonder")
    (path,) = tmp_path.iterdir()
    scram = Scram("SCRAM-SHA-512", users)
    change(users, path, user_file.line("alice", "wonder") + "\n")
    with pytest.raises(RefusedLogin, match="no keys"):
        scram.answer(b"n,,n=alice,r=x")
    assert users.keys("SCRAM-SHA-512", "alice") != users.keys("SCRAM-SHA-256", "alice")


async def logged_in(address: Endpoint, password: str) -> Client:
    """Return a client of alice, once the member has read the password."""
    async with asyncio.timeout(30):
        while True:
            client = await Client().connect(address, user="alice", password=password, mechanisms=SCRAM)
            begun, ended = asyncio.create_task(client.begun.wait()), asyncio.create_task(client.end())
            await asyncio.wait([begun, ended], return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                ended.cancel()
                return client
            begun.cancel()


async def test_a_password_changes_while_a_member_runs(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": "wonder", "bob": "builder"})
    async with member(tmp_path, "--users", str(path), "--role", "primary") as address:
        for password in ("wonder", "other"):
            write_users(path, {"alice": password})
            right = await logged_in(address, password)
            wrong = await Client().connect(address, user="alice", password="x", mechanisms=SCRAM)
            bob = await Client().connect(address, user="bob", password="builder", mechanisms=("PLAIN",))
            assert (await wrong.end()).condition.name == "amqp:unauthorized-access"
            await right.close()
            await bob.close()


def test_only_the_owner_can_read_what_is_written(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"alice": "wonder"})
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert "wonder" not in (tmp_path / "users").read_text()


async def test_passwd_makes_a_line_of_the_file(tmp_path: Path) -> None:
    result = await run("passwd", "bob", given=b"builder\n")
    assert result.exit_code == 0
    assert knows(of_lines(tmp_path, result.stdout), "SCRAM-SHA-256", "bob", "builder")
    for name, said, why in (("b:b", b"x\n", "colon"), ("b ", b"x\n", "white space"), ("b", b"\n", "empty")):
        result = await run("passwd", name, given=said)
        assert (result.exit_code, why in result.stderr) == (2, True)


async def test_a_pair_has_the_users_of_a_file_with_keys(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(f"{user_file.line('bob', 'builder')}\n{DEFAULT_ADMIN}:not this one\n")
    async with LocalCluster(LocalClusterOptions(users_file=path)) as cluster:
        async with aio.connect(cluster.url, credentials=Credentials(user="bob", password="builder")):
            """The user of the file."""
        async with asyncio.timeout(30):
            wrong = Credentials(user=DEFAULT_ADMIN, password="not this one")
            with pytest.raises(AuthenticationFailed):
                await aio.connect(cluster.url, credentials=wrong)
