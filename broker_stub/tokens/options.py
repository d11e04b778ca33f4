"""The options of the tokens that members accept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from broker_stub.command_options import FILE
from broker_stub.tokens.key_set import KeySetError, SignedTokens, TokenRules
from broker_stub.tokens.signatures import KeyFileError, SharedAccess
from haclient.engine.sasl.claims import SHARED_ACCESS
from haclient.engine.sasl.users import RefusedToken, TokenOwner, Tokens

_JWKS = "Accept tokens signed by a key of this JSON Web Key Set: a file, or an http(s) URL."
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--jwks", {"help": _JWKS}),
    ("--token-issuer", {"help": "The issuer that tokens must have (claim iss)."}),
    ("--token-audience", {"help": "The audience that tokens must have (claim aud)."}),
    ("--token-claim", {"help": "The claim with the user's name.  [default: sub]"}),
    (
        "--sas-keys",
        {"type": FILE, "help": "Accept Azure's shared access signatures: a file of name:key lines."},
    ),
    ("--cbs", {"is_flag": True, "help": "Let clients log in without a name, and put a token into $cbs."}),
)


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """The values of the options.

    :param signed: the rules of ``--jwks``.
    :param sas_keys: the file of ``--sas-keys``.
    :param claims: whether ``--cbs`` is given.
    """

    signed: TokenRules | None = None
    sas_keys: Path | None = None
    claims: bool = False

    @property
    def accept_any(self) -> bool:
        """Return whether members accept any tokens."""
        return self.signed is not None or self.sas_keys is not None

    @property
    def serve_arguments(self) -> tuple[str, ...]:
        """Return the options for a member's ``serve``."""
        rules = self.signed
        signed = (
            (None,) * 4 if rules is None else (rules.source, rules.issuer, rules.audience, rules.name_claim)
        )
        given = zip(_OPTIONS, (*signed, self.sas_keys and self.sas_keys.absolute()), strict=False)
        found = [part for (name, _), value in given if value is not None for part in (name, str(value))]
        return (*found, *(("--cbs",) if self.claims else ()))

    def read(self, reserved: frozenset[str]) -> Tokens | None:
        """Read the keys; ``None`` if no tokens are accepted.

        :param reserved: names that no token gives.
        :raises click.UsageError: if they cannot be read.
        """
        try:
            signed = None if self.signed is None else SignedTokens(replace(self.signed, reserved=reserved))
            shared = None if self.sas_keys is None else SharedAccess(self.sas_keys, reserved)
        except KeySetError as error:
            raise click.UsageError(f"--jwks: {error}") from None
        except KeyFileError as error:
            raise click.UsageError(f"--sas-keys: {error}") from None
        return _Both(signed, shared) if self.accept_any else None


class _Both:
    """Tokens of both kinds."""

    def __init__(self, signed: SignedTokens | None, shared: SharedAccess | None) -> None:
        self._signed, self._shared = signed, shared

    def owner(self, token: str) -> TokenOwner:
        known = self._shared if token.startswith(SHARED_ACCESS) else self._signed
        if known is None:
            raise RefusedToken("tokens of this kind are not accepted")
        return known.owner(token)


def token_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which receives ``TokenOptions`` as its argument ``tokens``."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = [arguments.pop(name.removeprefix("--").replace("-", "_")) for name, _ in _OPTIONS]
        command(tokens=_checked(*given), **arguments)

    decorated: Callable[..., None] = run
    for name, settings in reversed(_OPTIONS):
        decorated = click.option(name, **settings)(decorated)
    return decorated


def _checked(source: str | None, *others: Any) -> TokenOptions:
    issuer, audience, claim, sas_keys, claims = others
    if source is None:
        given = zip(_OPTIONS[1:4], (issuer, audience, claim), strict=True)
        if alone := [name for (name, _), value in given if value is not None]:
            raise click.UsageError(f"{alone[0]} goes with --jwks")
        signed = None
    else:
        is_url = source.startswith(("http://", "https://"))
        place = source if is_url else str(Path(source).absolute())
        signed = TokenRules(place, issuer, audience, claim or "sub")
    found = TokenOptions(signed, sas_keys, claims)
    if claims and not found.accept_any:
        raise click.UsageError("--cbs goes with --jwks or --sas-keys")
    return found
