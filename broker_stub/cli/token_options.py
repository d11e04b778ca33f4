"""The options of the tokens that members accept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from broker_stub.admission.jwks import KeySetError, SignedTokens, TokenRules

_OPTIONS = (
    ("--jwks", "Accept tokens signed by a key of this JSON Web Key Set: a file, or an http(s) URL."),
    ("--token-issuer", "The issuer that tokens must have (claim iss)."),
    ("--token-audience", "The audience that tokens must have (claim aud)."),
    ("--token-claim", "The claim with the user's name.  [default: sub]"),
)


def token_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which receives ``TokenRules`` or ``None`` as its argument ``tokens``."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = [arguments.pop(name.removeprefix("--").replace("-", "_")) for name, _ in _OPTIONS]
        command(tokens=_rules(*given), **arguments)

    decorated: Callable[..., None] = run
    for name, text in reversed(_OPTIONS):
        decorated = click.option(name, help=text)(decorated)
    return decorated


def _rules(source: str | None, *others: str | None) -> TokenRules | None:
    issuer, audience, claim = others
    if source is None:
        given = zip(_OPTIONS[1:], others, strict=True)
        if alone := [name for (name, _), value in given if value is not None]:
            raise click.UsageError(f"{alone[0]} goes with --jwks")
        return None
    if not source.startswith(("http://", "https://")):
        source = str(Path(source).absolute())
    return TokenRules(source, issuer, audience, claim or "sub")


def read_tokens(rules: TokenRules | None, reserved: frozenset[str]) -> SignedTokens | None:
    """Read the key set; ``None`` without rules.

    :param reserved: names that no token gives.
    :raises click.UsageError: if it cannot be read.
    """
    try:
        return None if rules is None else SignedTokens(replace(rules, reserved=reserved))
    except KeySetError as error:
        raise click.UsageError(f"--jwks: {error}") from None


def serve_arguments(rules: TokenRules | None) -> tuple[str, ...]:
    """Return the options for a member's ``serve``."""
    if rules is None:
        return ()
    values = (rules.source, rules.issuer, rules.audience, rules.name_claim)
    given = zip(_OPTIONS, values, strict=True)
    return tuple(part for (name, _), value in given if value is not None for part in (name, value))
