"""The process in which libFuzzer runs; its arguments: a target, ``planted`` or not, libFuzzer's own."""

from __future__ import annotations

import random
import sys
import time
from contextlib import nullcontext

import atheris

from tests.fuzz import script
from tests.fuzz.target import Defect

_MOST_SECONDS = 1.0


def main() -> None:
    name, planted, *flags = sys.argv[1:]
    with atheris.instrument_imports(include=["haclient", "broker_stub"]):
        from tests.fuzz.targets import make

        target = make(name)

    def one(data: bytes) -> None:
        began = time.process_time()
        target.run(data)
        took = time.process_time() - began
        if took > _MOST_SECONDS:
            raise Defect(f"{took:.1f} s of processor time")

    arguments = {}
    if target.scripted:
        arguments = {"custom_mutator": _mutate, "custom_crossover": script.splice}
    with target.planted() if planted == "planted" else nullcontext():
        atheris.Setup([sys.argv[0], *flags], one, internal_libfuzzer=True, **arguments)
        atheris.Fuzz()


def _mutate(data: bytes, limit: int, seed: int) -> bytes:
    return script.mutate(data, limit, seed, atheris.Mutate)


if __name__ == "__main__":
    random.seed(0)
    main()
