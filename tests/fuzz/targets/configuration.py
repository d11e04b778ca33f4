"""``HACLIENT_*`` variables and files such as ``connect.json``, written by the operator of an application.

An input has parts between null bytes. The first names the source: ``env``, ``json``, ``toml``,
``proton`` (the ``connect.json`` that proton reads) or ``file`` (a file and variables). A variable is
``NAME=VALUE``.

Rules: the result is a configuration, or a ``ConfigurationError`` or ``ClusterURLError`` with a text. A
configuration yields the options of a URL, or such an error. No error and no text of a configuration
shows a given password.
"""

from __future__ import annotations

import json
import os
import re
import string
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from haclient import configuration
from haclient.cluster_url.errors import ClusterURLError
from haclient.cluster_url.options import OPTION_NAMES, Options, with_overrides
from haclient.cluster_url.url import ClusterURL
from haclient.configuration import Configuration
from haclient.factory.connect_params import choose_credentials
from tests.fuzz.target import Defect, Target

_LONG_ENOUGH = 7
_ERRORS = (ClusterURLError, configuration.ConfigurationError)
_PASSWORD = re.compile(r'(?:"password"\s*:|^password\s*=)\s*"([^"\\]{7,})"', re.MULTILINE)
_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_OTHER = str.maketrans(_LETTERS, _LETTERS[13:] + _LETTERS[:13])
_JSON, _TOML = "input.json", "input.toml"


class Configurations(Target):
    name = "configuration"
    words = (
        *(b"\0HACLIENT_" + name.upper().encode() + b"=" for name in ("url", "user", "password", "config")),
        *(b"\0HACLIENT_" + name.upper().encode() + b"=" for name in OPTION_NAMES),
        *(f'"{name}": '.encode() for name in ("url", "user", "password", "tls", "sasl", "scheme", "host")),
        *(b"true", b"null", b"1e999", b"[[", b'{"', b"amqp://", b'"""', b"'''", b"# ", b"// ", b"\\u0000"),
    )

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._paths = {name: str(Path(self._folder.name, name)) for name in (_JSON, _TOML)}
        self._original = configuration._text
        # The code reads only files that this target has written, whatever an input names.
        self._patches = [
            mock.patch.object(configuration, "_text", self._text),
            mock.patch.dict(os.environ, {"MESSAGING_CONNECT_FILE": self._paths[_JSON]}),
        ]
        for patch in self._patches:
            patch.start()

    def run(self, data: bytes) -> None:
        kind, _, rest = data.partition(b"\0")
        text = self._shown(kind, rest)
        for secret in _secrets(kind, rest):
            # The password may be a word of the text. A text with another password must not show that one.
            other = secret.translate(_OTHER)
            same_place = rest.replace(secret.encode(), other.encode())
            if secret in text and other in self._shown(kind, same_place):
                raise Defect("a password is shown")

    def _shown(self, kind: bytes, rest: bytes) -> str:
        """Return the texts that an input produces."""
        try:
            found = self._read(kind, rest)
            if found is None:
                return ""
            shown = repr(found.url) + str(found.url) + repr(dict(found.origins)) + repr(found.arguments)
            if not isinstance(found.make(_options, {}), Options):
                raise Defect("no options")
        except _ERRORS as error:
            if not str(error):
                raise Defect("an error that says nothing") from error
            return f"{error} {error!r}"
        return shown

    def _read(self, kind: bytes, rest: bytes) -> Configuration | None:
        match kind:
            case b"env":
                return configuration.from_env(_variables(rest))
            case b"json" | b"toml":
                path = self._paths[_JSON if kind == b"json" else _TOML]
                Path(path).write_bytes(rest)
                return configuration.from_file(path)
            case b"proton":
                Path(self._paths[_JSON]).write_bytes(rest)
                return configuration.from_file()
            case b"file":
                text, _, variables = rest.partition(b"\0")
                path = self._paths[_JSON if text.lstrip().startswith(b"{") else _TOML]
                Path(path).write_bytes(text)
                return configuration.from_env({"HACLIENT_CONFIG": path, **_variables(variables)})
            case _:
                return None

    def _text(self, path: str, where: str, key: str | None = None) -> str:
        known = path in self._paths.values()
        return self._original(path if known else f"/nonexistent/{path}", where, key)

    def planted(self) -> AbstractContextManager[object]:
        """The error for an invalid JSON file quotes the invalid line."""

        def wrong(text: str, where: str) -> Mapping[str, Any]:
            try:
                found: Mapping[str, Any] = original(text, where)
            except configuration.ConfigurationError as error:
                raise configuration.ConfigurationError(f"{error}: {text}", origin=where) from None
            return found

        original = configuration._parsed_json
        return mock.patch.object(configuration, "_parsed_json", wrong)

    def close(self) -> None:
        for patch in self._patches:
            patch.stop()
        self._folder.cleanup()


def _options(
    url: ClusterURL,
    *,
    user: str | None = None,
    password: str | None = None,
    credentials: Any = None,
    **options: Any,
) -> Options:
    """Process the arguments as a factory does before its first connection."""
    choose_credentials(user, password, credentials)
    return with_overrides(url.options, **options)


def _variables(data: bytes) -> dict[str, str]:
    pairs = (each.partition(b"=") for each in data.split(b"\0"))
    # In the form of ``os.environ``.
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}


def _secrets(kind: bytes, rest: bytes) -> Iterator[str]:
    """Yield the input's passwords that do not occur elsewhere in it."""
    text, _, variables = (b"", b"", rest) if kind == b"env" else rest.partition(b"\0")
    given = [_variables(variables).get("HACLIENT_PASSWORD"), *_of_file(text.decode(errors="replace"))]
    for secret in given:
        if not isinstance(secret, str) or not secret.isascii() or len(secret) < _LONG_ENOUGH:
            continue
        if secret.translate(_OTHER) != secret and rest.count(secret.encode()) == 1:
            yield secret


def _of_file(text: str) -> list[Any]:
    """Return the passwords in a file. An invalid file may also contain one."""
    for parse in (tomllib.loads, lambda text: json.loads(configuration._strip_json_comments(text))):
        try:
            return [parse(text).get("password")]
        except (ValueError, RecursionError, AttributeError, TypeError):
            continue
    return [found[1] for found in _PASSWORD.finditer(text)]


TARGET = Configurations
