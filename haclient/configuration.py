"""Reads the configuration of a factory from the environment, a mapping or a file.

Rules
-----
* The keys are ``url``, ``user``, ``password``, ``password_file``, ``token_file`` and the options of a cluster
  URL.  Instead of ``url`` there may be the keys of proton's ``connect.json``: ``scheme``, ``host``, ``port``.
  Its ``tls`` and ``sasl`` are read as our options of the same meaning.
* In the environment a key is ``HACLIENT_<KEY>``, and ``HACLIENT_CONFIG`` names a file.
* Arguments of the call override variables, variables override the file, and all override the options in the
  URL.  Only ``HACLIENT_TELEMETRY`` is weaker than all, as it is without this module.
* An unknown key is an error.  Every error names the key and its origin; none holds a password.
* ``password_file`` and ``token_file`` are read before every attempt: to change the secret, change the file.

Source: proton's own reader of ``connect.json``, which the drop-in ``Container`` uses, too.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from proton._reactor import _find_config_file, _strip_json_comments

from haclient.cluster_url.authority import format_host
from haclient.cluster_url.endpoint import AMQP_PORT, AMQPS_PORT
from haclient.cluster_url.errors import ClusterURLError, ConfigurationError
from haclient.cluster_url.options import OPTION_NAMES
from haclient.cluster_url.seed import Credentials
from haclient.cluster_url.url import ClusterURL
from haclient.cluster_url.url_list import read_url
from haclient.engine.sasl.token import Token
from haclient.error_catalog.arguments import check_text
from haclient.factory.factory_core import FactoryArguments

PREFIX = "HACLIENT_"
_OWN_KEYS = ("url", "user", "password", "password_file", "token_file")
_SECRETS = frozenset({"password", "password_file", "token_file"})
_CREDENTIALS = ("user", "password", "credentials")
_KEYS = (*_OWN_KEYS, *OPTION_NAMES)
_VARIABLES = (*(f"{PREFIX}{key.upper()}" for key in _KEYS), f"{PREFIX}CONFIG")

# proton's names of its files and their keys.
_PROTON_VARIABLE = "MESSAGING_CONNECT_FILE"
_PROTON_SCHEME, _PROTON_HOST = "amqps", "localhost"
_ADDRESS = ("scheme", "host", "port")
_SERVICES = {"amqp": AMQP_PORT, "amqps": AMQPS_PORT}
_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "tls": {"ca": "tls_ca", "cert": "tls_cert", "key": "tls_key", "verify": "tls_verify"},
    "sasl": {"mechanisms": "sasl_mechanisms", "allow_insecure": "sasl_plaintext"},
}

_TOO_DEEP, _TOO_LONG = "it is nested too deeply", "it has a number that is too long"

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value, and its origin for errors."""

    value: Any
    origin: str


_Settings = dict[str, _Given]


@dataclass(frozen=True, slots=True)
class Configuration:
    """The URL and the arguments of a factory.

    :param origins: the origin of every given key: a variable, or a key of a file or mapping.
    :param user: the user that belongs to a password file.
    """

    url: ClusterURL
    arguments: FactoryArguments
    origins: Mapping[str, str]
    user: str | None = None

    def make(self, factory: Callable[..., F], given: Mapping[str, Any]) -> F:
        """Make a factory.

        :param given: arguments of the call, which override these.
        :raises ConfigurationError: names the key at fault; ``ClusterURLError`` for an argument.
        """
        try:
            return factory(self.url, **{**self._without_overridden(given), **given})
        except ClusterURLError as error:
            if error.option is None or error.option in given or error.option not in self.origins:
                raise
            raise _blame(error, error.option, self.origins[error.option]) from None

    def _without_overridden(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments without credentials that the call overrides.

        A lone password keeps our user.
        """
        named = {key for key in (*_OWN_KEYS, "credentials") if given.get(key) is not None}
        if not named:
            return self.arguments
        kept = {key: value for key, value in self.arguments.items() if key not in _CREDENTIALS}
        return {"user": self.user, **kept} if named == {"password"} else kept


def from_env(environ: Mapping[str, str] | None = None) -> Configuration:
    """Read ``HACLIENT_URL`` and the other variables of that prefix.

    :param environ: the variables; ``None`` for the environment of the process.
    :raises ConfigurationError: if a variable is unknown, missing or wrong.
    """
    if environ is None:  # ``help`` would show a default argument, passwords included
        environ = os.environ
    given: _Settings = {}
    for name in sorted(environ):
        if name.startswith(PREFIX):
            if name not in _VARIABLES:
                raise _unknown(name, f"environment variable {name}", _VARIABLES)
            given[name.removeprefix(PREFIX).lower()] = _Given(environ[name], f"environment variable {name}")
    config, telemetry = given.pop("config", None), given.pop("telemetry", None)
    if config is not None:
        given = _merged(_from_file(config.value, f" ({PREFIX}CONFIG)"), given)
    if "url" not in given:
        raise _missing(f"environment variable {PREFIX}URL")
    if telemetry is not None and "telemetry" not in given and _url(given["url"]).options.telemetry is None:
        given["telemetry"] = telemetry
    return _configured(given)


def from_mapping(mapping: Mapping[str, Any]) -> Configuration:
    """Read a mapping, such as a table of the application's own configuration.

    :raises ConfigurationError: if a key is unknown, missing or wrong.
    """
    return _configured(_located(_flat(mapping, "the mapping"), "the mapping"))


def from_file(path: str | os.PathLike[str] | None = None) -> Configuration:
    """Read a TOML or JSON file, by its extension; comments are allowed in both.

    :param path: ``None`` for the ``connect.json`` that proton would read: ``MESSAGING_CONNECT_FILE``, or in
        the working directory, ``~/.config/messaging`` or ``/etc/messaging``.
    :raises ConfigurationError: if the file cannot be read, or a key is unknown, missing or wrong.
    """
    if path is not None:
        return _configured(_located(_from_file(path), f"file {os.fspath(path)}"))
    found = os.environ.get(_PROTON_VARIABLE) or _find_config_file()
    if found is None:
        places = "., ~/.config/messaging, /etc/messaging"
        raise ConfigurationError(f"there is no connect.json in {places}, and {_PROTON_VARIABLE} is not set")
    where = f"file {found}"
    settings = _flat(_parsed_json(_text(found, where), where), where)
    settings.setdefault("url", _Given(f"{_PROTON_SCHEME}://{_PROTON_HOST}", where))
    return _configured(settings)


# -- reading --------------------------------------------------------------------------------------


def _from_file(path: str | os.PathLike[str], note: str = "") -> _Settings:
    name = os.fspath(path)
    where = f"file {name}{note}"
    parsers = {".toml": _parsed_toml, ".json": _parsed_json}
    parse = parsers.get(Path(name).suffix.lower())
    if parse is None:
        raise ConfigurationError(f"{where}: its name must end in .toml or .json", origin=where)
    return _flat(parse(_text(name, where), where), where)


def _text(path: str, where: str, key: str | None = None) -> str:
    """Return the text of a file; errors quote nothing of it."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except ValueError:  # not UTF-8, or a name with a null byte
        reason = "is not UTF-8 text"
    raise ConfigurationError(f"{where} {reason}", key, where)


def _parsed_toml(text: str, where: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = str(error)
    except RecursionError:
        reason = _TOO_DEEP
    except ValueError:  # Python reads no number of more than 4,300 digits
        reason = _TOO_LONG
    raise ConfigurationError(f"{where} is not TOML: {reason}", origin=where)


def _parsed_json(text: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(_strip_json_comments(text))
    except json.JSONDecodeError as error:
        reason = f"{error.msg} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        reason = _TOO_DEEP
    except ValueError:
        reason = _TOO_LONG
    else:
        if isinstance(found, dict):
            return found
        reason = "it holds no object"
    raise ConfigurationError(f"{where} is not JSON: {reason}", origin=where)


# -- keys -----------------------------------------------------------------------------------------


def _flat(found: Mapping[str, Any], where: str) -> _Settings:
    """Return the settings by our own keys."""
    settings: _Settings = {}
    address: _Settings = {}
    for key, value in found.items():
        given = _Given(value, f"key {key!r} of {where}")
        if key in _SECTIONS:
            for name, inner in _section(key, given, where).items():
                _put(settings, name, inner)
        elif key in _ADDRESS:
            address[key] = given
        elif key in _KEYS:
            _put(settings, key, given)
        else:
            raise _unknown(str(key), given.origin, (*_KEYS, *_ADDRESS, *_SECTIONS))
    if address:
        _put(settings, "url", _address(address))
    return settings


def _put(settings: _Settings, key: str, given: _Given) -> None:
    if key in settings:
        raise ConfigurationError(
            f"{given.origin}: the same is given by {settings[key].origin}", key, given.origin
        )
    settings[key] = given


def _section(section: str, given: _Given, where: str) -> _Settings:
    """Read the section ``tls`` or ``sasl`` of a ``connect.json``."""
    if not isinstance(given.value, Mapping):
        raise ConfigurationError(f"{given.origin}: it is no table of keys", section, given.origin)
    settings: _Settings = {}
    for key, value in given.value.items():
        origin = f"key '{section}.{key}' of {where}"
        name = _SECTIONS[section].get(key)
        if name is not None:
            settings[name] = _Given(value, origin)
        elif (section, key) != ("sasl", "enabled"):
            raise _unknown(key, origin, tuple(_SECTIONS[section]))
        elif value is not True:
            raise ConfigurationError(f"{origin}: a cluster is always connected to with SASL", origin=origin)
    return settings


def _address(found: _Settings) -> _Given:
    """Return the URL of the one address in a ``connect.json``."""
    for key, given in found.items():
        if not isinstance(given.value, str | int) or isinstance(given.value, bool):
            raise ConfigurationError(f"{given.origin}: it must be text", key, given.origin)
    scheme, host, port = (str(found[key].value) if key in found else None for key in _ADDRESS)
    if scheme not in {None, *_SERVICES}:
        origin = found["scheme"].origin
        raise ConfigurationError(f"{origin}: {scheme!r} is not amqp or amqps", "scheme", origin)
    text = f"{scheme or _PROTON_SCHEME}://{format_host(host or _PROTON_HOST)}"
    origin = ", ".join(given.origin for given in found.values())
    return _Given(text if port is None else f"{text}:{_SERVICES.get(port, port)}", origin)


def _merged(weak: _Settings, strong: _Settings) -> _Settings:
    hidden = _SECRETS if _SECRETS & set(strong) else set()
    return {**{key: given for key, given in weak.items() if key not in hidden}, **strong}


# -- meaning --------------------------------------------------------------------------------------


def _located(settings: _Settings, where: str) -> _Settings:
    if "url" not in settings:
        raise _missing(f"key 'url' of {where}")
    return settings


def _configured(settings: _Settings) -> Configuration:
    arguments: dict[str, Any] = {key: given.value for key, given in settings.items() if key not in _OWN_KEYS}
    credentials = _credentials(settings)
    if credentials is not None:
        arguments["credentials"] = credentials
    origins = MappingProxyType({key: given.origin for key, given in settings.items()})
    found = cast("FactoryArguments", arguments)
    return Configuration(_url(settings["url"]), found, origins, _word(settings, "user"))


def _url(given: _Given) -> ClusterURL:
    try:
        return read_url(given.value)
    except TypeError:
        reason = f"{given.origin}: a cluster URL is text, or a list of texts"
    except ClusterURLError as error:
        raise _blame(error, "url", given.origin) from None
    raise ConfigurationError(reason, "url", given.origin)


def _credentials(settings: _Settings) -> Credentials | Callable[[], Credentials | Token] | None:
    user, password, file, token_file = (_word(settings, key) for key in _OWN_KEYS[1:])
    if token_file is not None:
        return _token(settings, token_file, user)
    for key in ("password", "password_file"):
        if user is None and key in settings:
            origin = settings[key].origin
            raise ConfigurationError(f"{origin}: there is no user that it belongs to", key, origin)
    if file is None:
        return None if user is None else Credentials(user=user, password=password)
    origin = settings["password_file"].origin
    if password is not None:
        reason = f"the password is given already, by {settings['password'].origin}"
        raise ConfigurationError(f"{origin}: {reason}", "password_file", origin)
    _password(file, origin)  # read now, so that the caller gets the error of a wrong path

    def read() -> Credentials:
        try:
            return Credentials(user=user, password=_password(file, origin))
        except ConfigurationError as error:  # the file is being replaced: the client reads it again
            raise OSError(str(error)) from None

    return read


def _token(settings: _Settings, path: str, user: str | None) -> Callable[[], Token]:
    from haclient.tokens import TokenFile  # noqa: PLC0415 - loads HTTP

    origin = settings["token_file"].origin
    for key in ("password", "password_file"):
        if key in settings:
            reason = f"{settings[key].origin} sets the same; give one of them"
            raise ConfigurationError(f"{origin}: {reason}", "token_file", origin)
    found = TokenFile(path, user=user)
    try:
        found()  # now, so that the caller gets the error of a wrong path
    except OSError as error:
        raise ConfigurationError(f"{origin}: {error}", "token_file", origin) from None
    return found


def _word(settings: _Settings, key: str) -> str | None:
    if key not in settings:
        return None
    value, origin = settings[key].value, settings[key].origin
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ConfigurationError(f"{origin}: it must be text, and not empty", key, origin)
    return _without_nul(str(os.fspath(value)), key, origin)


def _password(path: str, origin: str) -> str:
    """Return the first line of a file: most editors end it with a newline."""
    password = _text(path, f"{origin}: file {path}", "password_file").split("\n", 1)[0].removesuffix("\r")
    if not password:
        raise ConfigurationError(f"{origin}: the first line of {path} is empty", "password_file", origin)
    return _without_nul(password, "password_file", origin)


def _without_nul(text: str, key: str, origin: str) -> str:
    try:
        check_text(key, text)
    except ValueError as error:
        raise ConfigurationError(f"{origin}: {error}", key, origin) from None
    return text


# -- errors ---------------------------------------------------------------------------------------


def _blame(error: ClusterURLError, key: str, origin: str) -> ConfigurationError:
    reason = str(error).removeprefix(f"option {key!r}: ")
    return ConfigurationError(f"{origin}: {reason}", error.option or key, origin)


def _unknown(name: str, origin: str, known: tuple[str, ...]) -> ConfigurationError:
    near = difflib.get_close_matches(name, known, n=1)
    suggestion = f"; did you mean {near[0]}?" if near else ""
    return ConfigurationError(f"{origin} is not known{suggestion}", name, origin)


def _missing(origin: str) -> ConfigurationError:
    return ConfigurationError(f"{origin} is missing: write amqp://host:port,host:port", "url", origin)
