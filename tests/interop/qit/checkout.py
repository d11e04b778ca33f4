"""Reads a checkout of qpid-interop-test: its values, and its shims with their dependencies.

Nothing of the checkout is stored here. The values are constants of its modules, which are parsed and
not run.

Source: qpid-interop-test 2.0, its modules of types and of JMS tests, "How to Write a QIT Shim".
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = Path(__file__).with_name("shims")
# The checkout's shims with dependencies outside their folders.
PYTHON, RHEA = "python-proton", "javascript-rhea"


@dataclass(frozen=True, slots=True)
class Shim:
    """A program that exposes one client to the runner.

    :param speaks_jms: whether its messages are JMS messages.
    :param fails_over: whether it accepts several members, and survives the death of one.
    :param joins: the suites whose values it sends in one run, each with its own type. Other shims take
        one type.
    """

    key: str
    folder: Path
    speaks_jms: bool
    fails_over: bool
    broker_prefix: str = "amqp://"
    joins: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        """Return the path of the program."""
        return self.folder / "shim.sh"

    @property
    def missing(self) -> str:
        """Return why the shim cannot run; empty if it can."""
        if self.key == RHEA:
            found = (self.folder / "node_modules/rhea").is_dir() or "NODE_PATH" in os.environ
            return "" if found and shutil.which("node") else "npm's rhea is not beside it, nor in NODE_PATH"
        built = any(self.folder.glob("target/*.jar"))
        if (self.folder / "pom.xml").exists() and not (built and shutil.which("java")):
            return "its jar is not there"
        if (self.folder / "CMakeLists.txt").exists() and not (self.folder / "build/qit_shim").exists():
            return "its program is not there"
        if any(self.folder.glob("*.csproj")) and not shutil.which("dotnet"):
            return ".NET is not there"
        return ""


def shims(checkout: Path) -> list[Shim]:
    """Return our shims and the shims of the checkout, runnable or not."""
    return [*_shims_in(OURS, fails_over=True), *_shims_in(checkout / "shims", fails_over=False)]


def _shims_in(folder: Path, *, fails_over: bool) -> Iterator[Shim]:
    for manifest in sorted(folder.glob("*/shim.json")):
        said = json.loads(manifest.read_text())
        yield Shim(
            manifest.parent.name,
            manifest.parent,
            speaks_jms=said["type"] == "jms",
            fails_over=fails_over,
            broker_prefix=said.get("broker_prefix", "amqp://"),
            joins=("types", "complex") if fails_over else ("types",) * (manifest.parent.name == PYTHON),
        )


def environment() -> Mapping[str, str]:
    """Return the environment in which shims find this interpreter, and with it proton, also as
    ``python3``.
    """
    folder = Path(sys.executable).parent
    return {**os.environ, "PYTHON": sys.executable, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def type_values(checkout: Path) -> dict[str, list[Any]]:
    """Return the values of each AMQP type, by its name: primitive types, then compound ones."""
    found: dict[str, list[Any]] = {}
    for module in ("primitives", "composites"):
        for value in _constants(checkout / "src/qit/types" / f"{module}.py").values():
            if isinstance(value, dict) and {"type", "values"} <= value.keys():
                found[value["type"]] = value["values"]
    if not found:
        raise SystemExit(f"{checkout} has no values: is it a checkout of qpid-interop-test 2.0?")
    return found


def jms_values(checkout: Path) -> dict[str, Any]:
    """Return bodies, headers and properties of JMS messages, by their names in the tests."""
    found = _constants(checkout / "tests/test_jms_unified.py")
    return {name: value for name, value in found.items() if name.isupper()}


def _constants(path: Path) -> dict[str, Any]:
    """Return the constants of a module and of its classes."""
    found: dict[str, Any] = {}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = _value(node.value)
            except ValueError:
                continue  # an expression: not data
    return found


def _value(node: ast.expr) -> Any:
    """Return the value of a literal, in which ``*`` may repeat texts and bytes."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _value(node.left) * _value(node.right)
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        pairs = zip(keys, node.values, strict=True)
        return {_value(key): _value(value) for key, value in pairs}
    return ast.literal_eval(node)
