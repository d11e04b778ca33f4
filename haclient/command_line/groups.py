"""Commands and groups of commands: their common behaviour.

* ``-h`` means ``--help``, and the error for a mistyped name suggests similar ones.
* The list of commands has whole sentences; click would cut long ones.
* A command's module is imported only when the command is used.
* A command with many options lists them under headings.
* Ctrl-C, see ``interrupts``.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from haclient.command_line import interrupts
from haclient.version import package_version

_F = TypeVar("_F", bound=Callable[..., Any])

AS_WRITTEN = "\b\n"
"""Prevents click from wrapping the lines that follow."""

# Longer than any sentence, so that click cuts none.
_WHOLE = 10_000

OptionGroups = Mapping[str, Sequence[str]]
"""Options under each heading of the help, each by its longest name without the dashes."""


class Command(click.Command):
    """A command that lists its options under headings.

    :param option_groups: options in no group are under *Other options*.
    """

    def __init__(self, *args: Any, option_groups: OptionGroups | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.option_groups: OptionGroups = option_groups or {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        headings = {name: heading for heading, names in self.option_groups.items() for name in names}
        rows: dict[str, list[tuple[str, str]]] = {"Options": [], **{each: [] for each in self.option_groups}}
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                rows[headings.get(_name_of(option), "Options")].append(record)
        # --help is the last option; the command's own groups precede it.
        rows["Other options" if self.option_groups else "Options"] = rows.pop("Options")
        for heading, records in rows.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def _name_of(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


class Group(click.Group):
    """A group of commands."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its whole first sentence."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [
            (name, command.get_short_help_str(_WHOLE))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Program(Group):
    """The commands of a program, each from a module of its own.

    :param modules: module of each command, in the order of the list; it has the command as an attribute.
    """

    group_class = Group

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)
        self._modules = modules

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program, or answer a shell's request for completion."""
        if any(name.endswith("_COMPLETE") for name in os.environ):
            from haclient.command_line import completion  # noqa: PLC0415 - only needed here

            completion.register()
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands, including ones that cannot run here."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command by its name."""
        if cmd_name not in self._modules:
            return None
        # Imported objects stay alive: garbage collection would take a third of the start.
        gc.disable()
        try:
            module = importlib.import_module(self._modules[cmd_name])
        finally:
            gc.enable()
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, which runs next."""
        found = super().resolve_command(ctx, args)
        interrupts.command_starts()
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; convert Ctrl-C to an exit code."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                interrupts.command_ends()
        except interrupts.Interrupt as interrupt:
            raise click.exceptions.Exit(interrupts.code_of(interrupt.number)) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(interrupts.INTERRUPTED) from None


def examples(program: str, *lines: str) -> str:
    """Format examples for ``--help``, with a reference to the exit codes."""
    shown = "\n".join(("Examples:", *(f"  {line}" for line in lines)))
    return f"{AS_WRITTEN}{shown}\n\nExit codes: see {program} --help."


def version_option(name: str) -> Callable[[_F], _F]:
    """Return the option ``--version`` of a program."""

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
        if wanted:
            click.echo(f"{name} {package_version()}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version and exit.",
    )
