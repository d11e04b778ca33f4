"""The program ``haclient``, also as ``python -m haclient``."""

from __future__ import annotations

from haclient.command_line import interrupts


def main() -> None:
    """Run the program."""
    interrupts.start_program()
    from haclient.cli import main as program  # noqa: PLC0415 - Ctrl-C ends the process meanwhile

    program()


if __name__ == "__main__":
    main()
