"""A factory from the environment, a mapping or a file: precedence, and errors."""

from __future__ import annotations

import ast
import json
import pickle
import pydoc
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import broker_stub
import haclient
from haclient import Credentials, aio, configuration
from haclient.cluster_url.endpoint import Endpoint
from haclient.cluster_url.options import OPTION_NAMES, Options
from haclient.configuration import Configuration
from haclient.errors import ClusterURLError, ConfigurationError
from haclient.factory.factory_core import FactoryCore
from haclient.telemetry import settings
from haclient.telemetry.settings import VARIABLE
from tests.members import Members

URL = "amqp://broker-a,broker-b"
SECRET = "Vq7PlantedPasswordZx"
HERE = Endpoint("broker-a", 5672)


def environ(**variables: object) -> dict[str, str]:
    named = {f"HACLIENT_{name}": str(value) for name, value in variables.items()}
    return {"HACLIENT_URL": URL, "PATH": "/bin", **named}


def core(found: Configuration, **arguments: Any) -> FactoryCore:
    return found.make(FactoryCore, arguments)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# -- precedence -----------------------------------------------------------------------------------


async def test_the_variables_say_where_who_and_how() -> None:
    made = core(configuration.from_env(environ(USER="app", PASSWORD="secret", WINDOW=5, HEARTBEAT="2s")))
    assert [seed.endpoint.host for seed in made.url.seeds] == ["broker-a", "broker-b"]
    assert (made.options.window, made.options.heartbeat) == (5, 2.0)
    assert await made.credentials.ask(HERE) == (Credentials(user="app", password="secret"), False)


def test_the_factories_of_both_apis_are_made_so(tmp_path: Path) -> None:
    path = written(tmp_path, "haclient.toml", f'url = "{URL}"\nwindow = 7')
    for kind in (haclient.ConnectionFactory, aio.ConnectionFactory):
        made = (
            kind.from_env(environ(), window=7),
            kind.from_mapping({"url": URL}, window=7),
            kind.from_file(path),
        )
        assert {type(factory) for factory in made} == {kind}
        assert {factory._core.options.window for factory in made} == {7}
        assert {str(factory._core.url) for factory in made} == {URL}


def test_the_process_own_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACLIENT_URL", "amqp://elsewhere")
    assert str(configuration.from_env().url) == "amqp://elsewhere"


@pytest.mark.parametrize("kind", [haclient.ConnectionFactory, aio.ConnectionFactory, configuration, settings])
def test_help_does_not_print_the_environment(kind: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HACLIENT_PASSWORD", SECRET)
    assert SECRET not in pydoc.render_doc(kind)


def test_no_default_argument_anywhere_is_the_environment() -> None:
    """A default would show in every signature, and so in documentation and in tracebacks with values."""
    found = [
        f"{path}:{default.lineno}"
        for package in (haclient, broker_stub)
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arguments)
        for default in (*node.defaults, *filter(None, node.kw_defaults))
        if "environ" in ast.unparse(default)
    ]
    assert found == []


@pytest.mark.parametrize("name", OPTION_NAMES)
def test_every_option_is_a_variable_and_a_key(name: str) -> None:
    assert name in configuration.from_env(environ(**{name.upper(): "1"})).arguments
    assert name in configuration.from_mapping({"url": URL, name: 1}).arguments


def test_an_argument_wins_over_a_variable_that_over_the_file_and_that_over_the_url(tmp_path: Path) -> None:
    path = written(
        tmp_path, "x.toml", 'url = "amqp://a?window=1&credit=1&stagger=1&max_dials=1"\nwindow = 2\ncredit = 2'
    )
    found = configuration.from_env(
        {"HACLIENT_CONFIG": str(path), "HACLIENT_WINDOW": "3", "HACLIENT_STAGGER": "3"}
    )
    options = core(found, stagger=4).options
    assert (options.stagger, options.window, options.credit, options.max_dials) == (4, 3, 2, 1)


def test_a_url_of_the_environment_replaces_the_address_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "connect.json", '{"scheme": "amqp", "host": "old", "user": "app"}')
    found = configuration.from_env(environ(CONFIG=path))
    assert str(found.url) == URL
    assert found.arguments["credentials"] == Credentials(user="app", password=None)


async def test_a_password_file_of_the_environment_replaces_the_password_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "x.toml", f'url = "{URL}"\nuser = "app"\npassword = "old"')
    secret = written(tmp_path, "password", "new\n")
    made = core(configuration.from_env({"HACLIENT_CONFIG": str(path), "HACLIENT_PASSWORD_FILE": str(secret)}))
    assert (await made.credentials.ask(HERE))[0] == Credentials(user="app", password="new")


async def test_credentials_of_the_call_win() -> None:
    token = Credentials(user="other", password="token")
    made = core(configuration.from_env(environ(USER="app", PASSWORD="secret")), credentials=token)
    assert await made.credentials.ask(HERE) == (token, False)
    found = configuration.from_env(environ(USER="app", PASSWORD="secret"))
    made = core(found, user="other", password="word")
    assert await made.credentials.ask(HERE) == (Credentials(user="other", password="word"), False)


async def test_a_user_of_the_call_does_not_get_the_password_of_another() -> None:
    made = core(configuration.from_env(environ(USER="app", PASSWORD="secret")), user="other")
    assert await made.credentials.ask(HERE) == (Credentials(user="other", password=None), False)


async def test_a_password_of_the_call_is_that_of_the_user_in_the_environment(tmp_path: Path) -> None:
    secret = written(tmp_path, "password", "old")
    for given in ({"PASSWORD": "old"}, {"PASSWORD_FILE": secret}, {}):
        made = core(configuration.from_env(environ(USER="app", **given)), password="new")
        assert await made.credentials.ask(HERE) == (Credentials(user="app", password="new"), False)


def test_a_table_may_list_the_members() -> None:
    made = core(configuration.from_mapping({"url": ["amqp://broker-a", "broker-b"]}))
    assert str(made.url) == URL


async def test_a_password_file_that_is_away_for_a_moment_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "password", "first")
    made = core(configuration.from_env(environ(USER="app", PASSWORD_FILE=path)))
    path.unlink()
    with pytest.raises(OSError, match="cannot be read"):
        await made.credentials.ask(HERE)


def test_a_table_may_hold_values_of_its_own_types() -> None:
    table = {
        "url": URL,
        "window": 10,
        "heartbeat": 2.5,
        "tls_verify": False,
        "deadline": None,
        "sasl_mechanisms": ["PLAIN", "EXTERNAL"],
    }
    options = core(configuration.from_mapping(table)).options
    assert options.window == 10
    assert (options.heartbeat, options.tls_verify, options.deadline) == (2.5, False, None)
    assert options.sasl_mechanisms == ("PLAIN", "EXTERNAL")


def test_where_each_key_came_from_is_known(tmp_path: Path) -> None:
    path = written(tmp_path, "x.toml", f'url = "{URL}"\nwindow = 2')
    found = configuration.from_env({"HACLIENT_CONFIG": str(path), "HACLIENT_CREDIT": "3"})
    assert found.origins["credit"] == "environment variable HACLIENT_CREDIT"
    assert found.origins["window"] == f"key 'window' of file {path} (HACLIENT_CONFIG)"


# -- the telemetry variable -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "arguments", "wanted"),
    [
        (URL, {}, "/variable"),
        (f"{URL}?telemetry=/url", {}, "/url"),
        (f"{URL}?telemetry=none", {}, ""),
        (URL, {"telemetry": "/argument"}, "/argument"),
        (URL, {"telemetry": ""}, ""),
    ],
)
def test_the_telemetry_variable_is_weaker_than_the_url(
    url: str, arguments: Mapping[str, Any], wanted: str
) -> None:
    found = configuration.from_env({"HACLIENT_URL": url, VARIABLE: "/variable"})
    options: dict[str, Any] = {"telemetry": found.url.options.telemetry, **found.arguments, **arguments}
    assert options["telemetry"] == wanted


def test_the_telemetry_variable_is_weaker_than_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "x.toml", f'url = "{URL}"\ntelemetry = "/file"')
    found = configuration.from_env({"HACLIENT_CONFIG": str(path), VARIABLE: "/variable"})
    assert found.arguments["telemetry"] == "/file"


# -- passwords in files -----------------------------------------------------------------------


async def test_a_password_file_is_read_before_each_attempt(tmp_path: Path) -> None:
    path = written(tmp_path, "password", "first\r\nrest\n")
    made = core(configuration.from_env(environ(USER="app", PASSWORD_FILE=path)))
    assert await made.credentials.ask(HERE) == (Credentials(user="app", password="first"), True)
    path.write_text("second")
    assert await made.credentials.ask(HERE) == (Credentials(user="app", password="second"), True)


@pytest.mark.parametrize("place", ["environment", "file"])
async def test_a_member_takes_the_password_of_the_file(place: str, tmp_path: Path) -> None:
    password = written(tmp_path, "password", f"{SECRET}\n")
    with Members(tmp_path) as members:
        member = members.start("a", role="primary", users={"app": SECRET}, anonymous=False)
        if place == "environment":
            variables = environ(URL=member.url, USER="app", PASSWORD_FILE=password)
            factory = aio.ConnectionFactory.from_env(variables)
        else:
            text = f'url = "{member.url}"\nuser = "app"\npassword_file = "{password}"'
            factory = aio.ConnectionFactory.from_file(written(tmp_path, "x.toml", text))
        async with factory, factory.connect() as connection:
            assert connection.endpoint == member.endpoint


# -- proton's file ----------------------------------------------------------------------------

CONNECT_JSON = """
{   // proton allows comments
    "scheme": "amqps", "host": "broker-a", "port": 5673, /* of both kinds */
    "user": "app", "password": "http://no-comment",
    "sasl": {"mechanisms": ["SCRAM-SHA-256"], "allow_insecure": false, "enabled": true},
    "tls": {"ca": "/ca.pem", "cert": "/cert.pem", "key": "/key.pem", "verify": false}
}
"""


def test_a_connect_json_is_understood(tmp_path: Path) -> None:
    found = configuration.from_file(written(tmp_path, "connect.json", CONNECT_JSON))
    assert str(found.url) == "amqps://broker-a:5673"
    assert found.arguments == {
        "credentials": Credentials(user="app", password="http://no-comment"),
        "sasl_mechanisms": ["SCRAM-SHA-256"],
        "sasl_plaintext": False,
        "tls_ca": "/ca.pem",
        "tls_cert": "/cert.pem",
        "tls_key": "/key.pem",
        "tls_verify": False,
    }


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("{}", "amqps://localhost"),
        ('{"host": "a"}', "amqps://a"),
        ('{"host": "::1", "scheme": "amqp"}', "amqp://[::1]"),
        ('{"port": "amqp", "host": "a"}', "amqps://a:5672"),
        ('{"url": "amqp://a,b", "window": 5}', "amqp://a,b"),
    ],
)
def test_without_a_name_it_is_looked_for_where_proton_looks(
    text: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MESSAGING_CONNECT_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "connect.json", text)
    assert str(configuration.from_file().url) == url
    monkeypatch.setenv("MESSAGING_CONNECT_FILE", str(written(tmp_path, "other", '{"host": "other"}')))
    assert str(configuration.from_file().url) == "amqps://other"


async def test_a_real_member_is_reached_by_the_file_that_proton_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Members(tmp_path) as members:
        member = members.start("a", role="primary", users={"app": SECRET}, anonymous=False)
        host, _, port = member.address.partition(":")
        known = {"scheme": "amqp", "host": host, "port": int(port), "user": "app", "password": SECRET}
        path = written(tmp_path, "connect.json", json.dumps(known))
        monkeypatch.setenv("MESSAGING_CONNECT_FILE", str(path))
        async with aio.ConnectionFactory.from_file() as factory, factory.connect() as connection:
            assert connection.endpoint == member.endpoint


# -- errors -----------------------------------------------------------------------------------

WRONG: list[tuple[Mapping[str, Any], str, str]] = [
    ({"window": "many"}, "window", "'many' is not a whole number"),
    ({"heartbeat": "1 fortnight"}, "heartbeat", "is not a time"),
    ({"window": [1, {}]}, "window", "a value of type dict cannot be used"),
    ({"tls_key": "/key.pem"}, "tls_key", "there is no tls_cert that it belongs to"),
    ({"tls_ca": "/nowhere/ca.pem"}, "tls_ca", "No such file"),
    ({"url": "http://a"}, "url", "unknown scheme 'http'"),
    ({"url": ""}, "url", "the cluster URL is empty"),
    ({"url": "amqp://a?windw=5"}, "url", "unknown option 'windw'; did you mean 'window'"),
    ({"user": ""}, "user", "must be text, and not empty"),
    ({"password": SECRET}, "password", "there is no user that it belongs to"),
    ({"password_file": "/x"}, "password_file", "there is no user that it belongs to"),
    ({"user": "a", "password_file": "/nowhere/p"}, "password_file", "cannot be read: No such file"),
    ({"user": "a", "password_file": "/dev/null"}, "password_file", "the first line of /dev/null is empty"),
    ({"user": "a", "password": "b", "password_file": "/x"}, "password_file", "the password is given already"),
    ({"token_file": "/nowhere/t"}, "token_file", "No such file"),
    ({"token_file": "/dev/null"}, "token_file", "1 to 60000 characters"),
    ({"token_file": "/x", "user": "a", "password": "b"}, "token_file", "sets the same; give one of them"),
]
FILE_ONLY: list[tuple[Mapping[str, Any], str, str]] = [
    ({"windows": 5}, "windows", "is not known; did you mean window?"),
    ({"user": 5}, "user", "must be text"),
    ({"url": 5}, "url", "a cluster URL is text"),
    ({"host": "a"}, "host", "the same is given by key 'url'"),
    ({"tls": {"ca": "/ca"}, "tls_ca": "/ca"}, "tls_ca", "the same is given by key 'tls.ca'"),
    ({"tls": {"cipher": "x"}}, "tls.cipher", "is not known"),
    ({"tls": True}, "tls", "no table of keys"),
    ({"sasl": {"enabled": False}}, "sasl.enabled", "always connected to with SASL"),
]


def check(call: Callable[[], Configuration], origin: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        core(call())
    error = caught.value
    assert str(error).startswith(origin), str(error)
    assert reason in str(error)
    assert error.origin is not None
    assert isinstance(error, ClusterURLError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
    assert SECRET not in "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(("given", "key", "reason"), [case for case in WRONG if "[" not in str(case[0])])
def test_an_error_names_the_variable(given: Mapping[str, Any], key: str, reason: str) -> None:
    variables = environ(**{name.upper(): value for name, value in given.items()})
    check(lambda: configuration.from_env(variables), f"environment variable HACLIENT_{key.upper()}", reason)


@pytest.mark.parametrize(("given", "key", "reason"), [*WRONG, *FILE_ONLY])
def test_an_error_names_the_key_and_its_file(
    given: Mapping[str, Any], key: str, reason: str, tmp_path: Path
) -> None:
    known = {"url": URL, **given}
    path = written(tmp_path, "x.json", json.dumps(known))
    check(lambda: configuration.from_file(path), f"key '{key}' of file {path}", reason)
    check(lambda: configuration.from_mapping(known), f"key '{key}' of the mapping", reason)
    variables = {"HACLIENT_CONFIG": str(path)}
    check(lambda: configuration.from_env(variables), f"key '{key}' of file {path} (HACLIENT_CONFIG)", reason)


@pytest.mark.parametrize(
    ("known", "key", "reason"),
    [
        ({"scheme": "http", "host": "a"}, "scheme", "'http' is not amqp or amqps"),
        ({"host": ["a"]}, "host", "must be text"),
        ({"port": True}, "port", "must be text"),
        ({"host": "a b"}, "host", "whitespace"),
        ({"port": 99999}, "port", "a port is a number"),
    ],
)
def test_an_error_names_the_part_of_an_address(known: Mapping[str, Any], key: str, reason: str) -> None:
    check(lambda: configuration.from_mapping(known), f"key '{key}' of the mapping", reason)


@pytest.mark.parametrize("name", ["HACLIENT_WINDOWS", "HACLIENT_USERNAME", "HACLIENT_", "HACLIENT_url"])
def test_a_variable_that_is_not_known_is_an_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"environment variable {name} is not known"):
        configuration.from_env({**environ(), name: "x"})


def test_the_likeliest_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match="did you mean HACLIENT_WINDOW"):
        configuration.from_env(environ(WINDOWS=5))


def test_a_missing_url_is_named() -> None:
    with pytest.raises(ConfigurationError, match="environment variable HACLIENT_URL is missing"):
        configuration.from_env({})
    with pytest.raises(ConfigurationError, match="key 'url' of the mapping is missing"):
        configuration.from_mapping({"window": 5})


def test_an_argument_that_is_wrong_is_not_blamed_on_the_environment() -> None:
    with pytest.raises(ClusterURLError, match="option 'window'") as caught:
        core(configuration.from_env(environ(WINDOW=5)), window="many")
    assert not isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.toml", f'password = "{SECRET}" oops', "is not TOML: "),
        ("x.toml", f"password = {SECRET}", "is not TOML: "),
        ("x.json", f'{{"password": "{SECRET}" oops}}', "is not JSON: "),
        ("x.json", f'["{SECRET}"]', "it holds no object"),
        ("x.ini", f"password={SECRET}", "its name must end in .toml or .json"),
        ("x.toml", f'password = "{SECRET}\udcff"', "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_not_quoted(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(errors="surrogateescape"))
    check(lambda: configuration.from_file(path), f"file {path}", reason)


@pytest.mark.parametrize("depth", [2_000, 100_000])
@pytest.mark.parametrize(
    ("name", "opening"), [("x.json", "["), ("x.json", '{"a":'), ("x.toml", "a = ["), ("x.toml", "a = {a=")]
)
def test_a_file_that_is_nested_too_deeply_is_named(
    name: str, opening: str, depth: int, tmp_path: Path
) -> None:
    path = tmp_path / name
    first, _, repeated = opening.rpartition(" = ")
    path.write_text(f"{first} = {repeated * depth}" if first else opening * depth)
    check(lambda: configuration.from_file(path), f"file {path}", "it is nested too deeply")


@pytest.mark.parametrize(("name", "text"), [("x.json", '{"window": %s}'), ("x.toml", "window = %s")])
def test_a_file_with_a_number_that_python_does_not_read_is_named(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text % ("9" * 5000))
    check(lambda: configuration.from_file(path), f"file {path}", "it has a number that is too long")


def test_a_password_file_that_is_no_text_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(SECRET.encode() + b"\xff")
    variables = environ(USER="app", PASSWORD_FILE=path)
    origin = f"environment variable HACLIENT_PASSWORD_FILE: file {path}"
    check(lambda: configuration.from_env(variables), origin, "is not UTF-8 text")


def test_a_file_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.toml"
    check(lambda: configuration.from_file(path), f"file {path}", "cannot be read: No such file")
    variables = {"HACLIENT_CONFIG": str(path)}
    check(lambda: configuration.from_env(variables), f"file {path} (HACLIENT_CONFIG)", "cannot be read")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MESSAGING_CONNECT_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"there is no connect\.json in \., ~/\.config"):
        configuration.from_file()


def test_what_is_shown_holds_no_password() -> None:
    found = configuration.from_env(environ(USER="app", PASSWORD=SECRET))
    assert SECRET not in repr(found)


def test_a_documented_configuration_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    toml = page.split("```toml\n")[1].split("```")[0]
    assert "password_file" in toml
    for line in toml.splitlines():
        key = line.partition("=")[0].strip()
        assert (
            not key
            or key.startswith("#")
            or key in {"url", "user", "password_file"}
            or hasattr(Options(), key)
        )


@pytest.mark.parametrize("key", ["user", "password"])
def test_a_credential_with_a_nul_is_an_error_that_names_the_key_and_shows_no_password(key: str) -> None:
    environment = {"HACLIENT_URL": "amqp://a", "HACLIENT_USER": "ann", "HACLIENT_PASSWORD": "secret"}
    environment[f"HACLIENT_{key.upper()}"] = "battery\0staple"
    with pytest.raises(ConfigurationError, match=f"{key}.*NUL") as caught:
        haclient.ConnectionFactory.from_env(environment)
    assert "battery" not in str(caught.value)
