"""Exit codes and option types of all command lines: of ``cli`` and of the resource agents."""

from __future__ import annotations

from pathlib import Path

import click

from broker_stub.amqp.endpoints import parse_endpoint
from haclient.cluster_url.endpoint import Endpoint

# Click itself uses 2, for wrong usage.
REFUSED, UNREACHABLE = 1, 3

ARBITER_VARIABLE = "BROKER_STUB_ARBITER"
"""The variable with the arbiter's URL, whose password would be visible to all users on a command line."""


class AddressType(click.ParamType[Endpoint]):
    """``host:port``, with or without a scheme."""

    name = "host:port"

    def convert(
        self, value: str | Endpoint, param: click.Parameter | None, ctx: click.Context | None
    ) -> Endpoint:
        """Parse the value, or fail with the reason."""
        if isinstance(value, Endpoint):
            return value
        try:
            return parse_endpoint(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


ADDRESS = AddressType()
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
