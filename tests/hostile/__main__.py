"""``python -m tests.hostile broker|client --minutes 10 --seed N``: see the commands' help."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
import time
from collections import Counter

import click

from tests.hostile import rounds
from tests.hostile.broker import BEHAVIOURS
from tests.hostile.clients import pair
from tests.hostile.clients.acts import ACTS

_SEED = click.option("--seed", type=int, help="What decides on everything.  [default: a new one]")


@click.group(context_settings={"show_default": True})
def main() -> None:
    """Hostile peers at random."""


@main.command()
@click.option("--minutes", type=float, default=10.0, help="Begin no round after them.")
@_SEED
@click.option("--rounds", "most", type=click.IntRange(1), help="So many rounds at most.")
@click.option("--caller", "callers", type=click.Choice(rounds.CALLERS), multiple=True, help="Only these.")
@click.option("--behaviour", "behaviours", type=click.Choice(list(BEHAVIOURS)), multiple=True)
@click.option("--seconds", type=float, help="Of each round.  [default: 3 to 6]")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Rounds at a time.")
@click.option("--verbose", is_flag=True, help="Print how calls ended and what was drawn.")
def broker(
    *,
    minutes: float,
    seed: int | None,
    most: int | None,
    callers: tuple[str, ...],
    behaviours: tuple[str, ...],
    seconds: float | None,
    jobs: int,
    verbose: bool,
) -> None:
    """Run every client against a hostile broker.

    Round n has the seed SEED + n. The printed command repeats a round that found a defect.
    """
    seed = secrets.randbits(31) if seed is None else seed
    click.echo(f"seed {seed}")
    until = time.monotonic() + minutes * 60
    numbers = iter(range(seed, seed + (most or 10**9)))
    found: list[rounds.Outcome] = []

    async def work() -> None:
        for number in numbers:
            if time.monotonic() > until:
                return
            what = rounds.draw(number, callers=callers, behaviours=behaviours, seconds=seconds)
            outcome = await rounds.run(what)
            found.append(outcome)
            _print_round(outcome, verbose=verbose)

    async def all_jobs() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(work())

    asyncio.run(all_jobs())
    sys.exit(_summary(found))


@main.command()
@click.option("--minutes", type=float, default=10.0, help="How long.")
@_SEED
@click.option("--act", "acts", type=click.Choice(list(ACTS)), multiple=True, help="Only these.")
def client(*, minutes: float, seed: int | None, acts: tuple[str, ...]) -> None:
    """Run hostile clients against a pair, together with honest ones."""
    seed = secrets.randbits(31) if seed is None else seed
    click.echo(f"seed {seed}")
    # Losses of honest clients' connections are counted instead.
    logging.getLogger("haclient").setLevel(logging.CRITICAL)
    outcome = asyncio.run(pair.run(seed, minutes * 60, acts=acts))
    for end, count in sorted(outcome.ends.items()):
        click.echo(f"{count:6} {end}")
    for defect in outcome.defects:
        click.echo(f"DEFECT {defect}")
    click.echo(str(outcome))
    sys.exit(1 if outcome.defects else 0)


def _print_round(outcome: rounds.Outcome, *, verbose: bool) -> None:
    click.echo(str(outcome))
    if verbose:
        for line in outcome.drawn:
            click.echo(f"    {line}")
        for end, count in outcome.ends.most_common():
            click.echo(f"    {count:5} {end}")
    for defect in outcome.defects:
        click.echo(f"  DEFECT {defect}")
    if outcome.defects:
        click.echo(f"  again: {outcome.round.command}")


def _summary(found: list[rounds.Outcome]) -> int:
    ends: Counter[str] = Counter()
    for outcome in found:
        ends.update(outcome.ends)
    bad = [outcome for outcome in found if outcome.defects]
    most = max(found, key=lambda outcome: outcome.growth)
    click.echo(
        f"{len(found)} rounds, {sum(outcome.connections for outcome in found)} connections,"
        f" {ends.total()} calls; most memory {most.growth // 2**20} MiB (seed {most.round.seed});"
        f" {len(bad)} rounds with defects"
    )
    for outcome in bad:
        click.echo(f"  {outcome.round.command}")
    return 1 if bad else 0


if __name__ == "__main__":
    main()
