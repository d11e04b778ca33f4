"""Refuse public functions, methods and classes that only tests use: ``scripts/check_unused.py [ROOT]``.

Rules
-----
* A use is an occurrence of the name in the code of ``USERS`` outside its own definition: a read, a string
  of exactly this name (``getattr``), or code in a page.  Imports and ``__all__`` do not count.  Names are
  compared as text: if two definitions share a name, one use is enough for both.
* A definition that a decorator registers with a framework is used, such as a command or a fixture.
* A method that a class of ``FRAMEWORKS`` has is called by that framework, as are handlers of proton's events.
* ``EXCEPTIONS`` lists the others, each with its reason.  An exception that is used or gone is refused too.
"""

from __future__ import annotations

import ast
import asyncio
import collections.abc
import io
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import click.shell_completion
import proton
import proton.handlers
import proton.reactor
import proton.utils

PACKAGES = ("haclient", "broker_stub")
USERS = (*PACKAGES, "benchmarks", "examples", "scripts")
PAGES = ("README.md", "docs/**/*.md")

FRAMEWORKS: tuple[type, ...] = (
    asyncio.BaseEventLoop,
    asyncio.DatagramProtocol,
    asyncio.Future,
    asyncio.Protocol,
    click.Group,
    click.Path,
    click.shell_completion.ShellComplete,
    collections.abc.Coroutine,
    proton.Connection,
    proton.Handler,
    proton.SSL,
    proton.SSLDomain,
    proton.Transport,
    proton.handlers.EndpointStateHandler,
    proton.handlers.MessagingHandler,
    proton.handlers.TransactionHandler,
    proton.reactor.Container,
    proton.utils.BlockingConnection,
    proton.utils.SyncRequestResponse,
    io.RawIOBase,
    urllib.request.HTTPHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPSHandler,
)

EXCEPTIONS: Mapping[str, str] = {
    "cut_after": "haclient.testing is for tests, and so is its proxy",
    "in_thread": "haclient.testing is for tests: an asynchronous fixture for one that is not",
    "set_ssl_domain": "a method of proton's acceptor, which is in no public module of proton",
}

# Decorators that register a function with a framework.
_REGISTERING = frozenset({"command", "group", "fixture"})
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_DOTTED = re.compile(r"\w+(?:[.:]\w+)*")


@dataclass(frozen=True, slots=True)
class Definition:
    """A function, method or class."""

    name: str
    place: str
    registered: bool


def definitions(tree: ast.Module, path: str) -> Iterator[Definition]:
    """Yield the public definitions of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
            decorators = {name for each in node.decorator_list for name in _decorator(each)}
            yield Definition(node.name, f"{path}:{node.lineno}", bool(decorators & _REGISTERING))


def _decorator(node: ast.expr) -> Iterator[str]:
    called = node.func if isinstance(node, ast.Call) else node
    yield called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)


def uses(tree: ast.Module) -> Counter[str]:
    """Count the names that a module uses, each outside its own definition."""
    counts = Counter(_names(tree))
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                counts[node.name] -= sum(name == node.name for name in _names(node))
            case ast.Assign(targets=[ast.Name("__all__")]):
                counts.subtract(_names(node.value))
    return +counts


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.alias(name=name, asname=str()):
                yield name
            case ast.Constant(value=str(text)) if _DOTTED.fullmatch(text):
                yield from re.split("[.:]", text)


def unused(root: Path, exceptions: Mapping[str, str] = EXCEPTIONS) -> Iterator[str]:
    """Yield a line for each unused definition and each needless exception."""
    used: Counter[str] = Counter()
    defined: list[Definition] = []
    for user in USERS:
        for path in sorted((root / user).rglob("*.py")):
            tree = ast.parse(path.read_bytes())
            if path.name != Path(__file__).name:  # this file names the exceptions
                used += uses(tree)
            if user in PACKAGES:
                defined += definitions(tree, path.relative_to(root).as_posix())
    for pattern in PAGES:
        for page in root.glob(pattern):
            used.update(word for code in _CODE.findall(page.read_text()) for word in re.findall(r"\w+", code))
    called = {name for framework in FRAMEWORKS for name in dir(framework)}
    called |= {event.method for event in vars(proton.Event).values() if isinstance(event, proton.EventType)}
    alone = [each for each in defined if not (each.registered or each.name in called or used[each.name])]
    yield from (f"{each.place}: only tests use {each.name}" for each in alone if each.name not in exceptions)
    for name in sorted(exceptions.keys() - {each.name for each in alone}):
        yield f"scripts/check_unused.py: {name} needs no exception"


def main() -> int:
    """Print every fault and return 1 if there is one."""
    root = Path(sys.argv[1] if sys.argv[1:] else ".").resolve()
    found = list(unused(root))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
