"""The file of users: its lines, its errors, and what happens when it changes."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_stub.admission import user_file
from broker_stub.admission.user_file import DEFAULT_ADMIN, UserFile, UserFileError, write_users
from broker_stub.local_cluster.supervisor import LocalCluster, LocalClusterOptions
from haclient import Credentials, aio
from haclient.engine.sasl.users import DIGESTS, derive
from haclient.errors import AuthenticationFailed
from tests.broker_stub.clients import Client, member
from tests.broker_stub.commands import run

SCRAM = tuple(DIGESTS)
# Made by Dovecot 2.3.19: doveadm pw -s SCHEME -p PASSWORD.
OF_DOVECOT = {
    "{SCRAM-SHA-256}4096,epXd/Sz6ag9NVVIRgiPqGQ==,A4Lsv9bztQpd5BEa9CVGuKJwWf+7le6OTOszk3rLexY=,"
    "KSFqWxEXoeHvOL3Otfxig5CxUYJORi9rrVHcVv+dAtA=": "wonder \N{GRINNING FACE}",
    "{SCRAM-SHA-1}4096,y+JG0V3guKqSU2uwuj9eIA==,lkyKbduoPwXWIFPMJMmtpwB/e1E=,Z8lw9fRUfIt2g6iwIP1bAsjgoyc=": (
        "wonder"
    ),
}


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
        (["a:{SCRAM-SHA-224}4096,secret"], "line 1: SCRAM-SHA-224 is not one of SCRAM-SHA-512, SCRAM"),
        (["a:{SCRAM-SHA-256}4096,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: a salt has 12 to 64 bytes"),
        (["a:{SCRAM-SHA-256}1,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must be 4096 to 65536"),
        (["a:{SCRAM-SHA-256}9" + "0" * 5000 + ",c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must"),
        (["a:{SCRAM-SHA-256}-4096,c2VjcmV0,c2VjcmV0,c2VjcmV0"], "line 1: the iterations must"),
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


def test_members_with_the_same_file_have_the_same_salts_for_every_name(tmp_path: Path) -> None:
    """A name whose salt differs between two members would be one that does not exist."""
    lines = ("alice:wonder", user_file.line("bob", "builder"))
    first, second = of_lines(tmp_path, *lines), of_lines(tmp_path, *lines)
    salts = {}
    for name in ("alice", "bob", "nobody"):
        (salts[name],) = {users.keys("SCRAM-SHA-256", name).salt for users in (first, second, first)}
    assert len(set(salts.values())) == len(salts)
    assert len({len(salt) for salt in salts.values()}) == 1


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
    for text, password in (("alice:other", "other"), ("alice", "other"), ("alice:third", "third")):
        path.write_text(text)
        os.utime(path, ns=(0, secrets.randbits(40)))
        with caplog.at_level(logging.WARNING):
            assert users.mechanisms == SCRAM
        assert knows(users, "SCRAM-SHA-256", "alice", password)
    path.unlink()
    assert users.mechanisms == SCRAM
    assert knows(users, "SCRAM-SHA-256", "alice", "third")
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2
    assert "line 1: name:password is expected; the users stay as they were" in warnings[0]


async def test_a_password_changes_while_a_member_runs(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": "wonder", "bob": "builder"})
    async with member(tmp_path, "--users", str(path), "--role", "primary") as address:
        for password in ("wonder", "other"):
            write_users(path, {"alice": password})
            right = await Client().connect(address, user="alice", password=password, mechanisms=SCRAM)
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
