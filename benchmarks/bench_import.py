"""Processor time of ``import haclient.

Haclient.connect``, compared with ``import proton`` and a bare interpreter.

Each is measured in its own processes, in turns, from the start of the interpreter. The lowest value of all
turns counts, because anything above it is other work of the machine.

Aim: 100 ms on an idle machine.
"""

from __future__ import annotations

import subprocess
import sys

import measure

_OURS, _PROTON = "haclient.connect", "proton"
_PROGRAMS = {
    "nothing": "",
    _PROTON: "import proton",
    "proton and asyncio": "import proton, asyncio",
    _OURS: "import haclient; haclient.connect",
    "haclient.aio.connect": "import haclient.aio",
}
_TIME = "\nimport time; print(time.process_time())"
_AIM = 100.0


def _seconds(program: str) -> float:
    done = subprocess.run([sys.executable, "-c", program + _TIME], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    arguments = measure.parse_arguments(measure.argument_parser(__doc__, rounds=20))
    measure.print_header("Importing", arguments)
    seconds: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for program in _PROGRAMS.values():
        _seconds(program)  # compiles it
    for _ in range(arguments.rounds):
        for name, program in _PROGRAMS.items():
            seconds[name].append(_seconds(program))
    lowest = {name: min(values) * 1e3 for name, values in seconds.items()}
    print(f"\n  {'':<24}{'ms':>8}{'to proton':>12}")
    for name, milliseconds in lowest.items():
        print(f"  {name:<24}{milliseconds:>8.0f}{milliseconds / lowest[_PROTON]:>11.2f}x")
    print()
    measure.print_bar("import haclient; haclient.connect", lowest[_OURS], _AIM, at_least=False, unit=" ms")


if __name__ == "__main__":
    main()
