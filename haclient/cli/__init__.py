"""The command ``haclient``: ``analyze`` telemetry, and ``telemetry`` to make some and to see its format.

Exit codes, for scripts: 0 done, 1 a threshold is broken, 2 usage, 3 the input or this machine cannot be
used (the reason is on standard error).
"""

from __future__ import annotations

import click

from haclient.cli.analyze import analyze
from haclient.cli.telemetry import telemetry


@click.group()
def main() -> None:
    """What connections went through: analyse it, or make some to try the analysis on."""


for command in (analyze, telemetry):
    main.add_command(command)
