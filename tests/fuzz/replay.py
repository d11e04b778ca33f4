"""Replay inputs on a target, with a traceback for the first that breaks a rule.

``python -m tests.fuzz.replay TARGET [FILE ...]``; without a file, the corpus.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.fuzz.targets import NAMES, make


def main() -> None:
    """Run the inputs on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.replay")
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("files", nargs="*", type=Path)
    given = parser.parse_args()
    target = make(given.target)
    for path in given.files or target.inputs():
        print(path, flush=True)  # noqa: T201
        target.run(path.read_bytes())
    target.close()


if __name__ == "__main__":
    main()
