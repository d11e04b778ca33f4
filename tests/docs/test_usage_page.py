"""The programs of ``docs/usage.md`` work, also without ``async`` and ``await`` on the blocking API."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import haclient
from haclient import aio
from haclient.testing import Broker
from haclient.testing.threads import in_thread
from tests.docs.pages import ROOT, URL, sections
from tests.peers import primary, url
from tests.peers.primary import Primary

ASYNCIO = sections("usage.md")


def without_async(program: str) -> str:
    """Convert an asyncio program to a blocking one, by the rule on the page."""
    return re.sub(r"\b(async|await) ", "", program).replace("haclient.aio", "haclient")


BLOCKING = {heading: [without_async(each) for each in programs] for heading, programs in ASYNCIO.items()}


def test_each_section_has_a_program() -> None:
    assert len(ASYNCIO) > 8
    assert all(ASYNCIO.values())


@pytest.fixture
def broker(haclient_module_broker: Broker) -> Broker:
    """The member that the examples use, emptied."""
    haclient_module_broker.restore()
    return haclient_module_broker


@asynccontextmanager
async def publisher() -> AsyncIterator[Primary]:
    """A member with topics, which ``broker_stub`` lacks, and one queued message."""
    async with primary() as peer:
        peer.put("news", "hello")
        yield peer


def test_the_programs_run_on_the_blocking_api(broker: Broker) -> None:
    names: dict[str, Any] = {"haclient": haclient}
    with in_thread(publisher()) as peer:
        for heading, programs in BLOCKING.items():
            where = url(peer) if heading == "Subscribe" else broker.url
            with haclient.connect(where, client_id="me") as connection:
                for program in programs:
                    if heading != "Connect":
                        names["connection"] = connection
                    exec(compile(program.replace(URL, where), "usage.md", "exec"), names)  # noqa: S102


async def test_the_programs_run_on_asyncio(broker: Broker) -> None:
    names: dict[str, Any] = {"haclient": haclient}
    async with publisher() as peer:
        for heading, programs in ASYNCIO.items():
            where = url(peer) if heading == "Subscribe" else broker.url
            async with aio.connect(where, client_id="me") as connection:
                for program in programs:
                    if heading != "Connect":
                        names["connection"] = connection
                    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                    code = compile(program.replace(URL, where), "usage.md", "exec", flags=flags)
                    running = eval(code, names)  # noqa: S307
                    if inspect.isawaitable(running):
                        await running


def functions(page: Mapping[str, list[str]], define: str) -> str:
    """Return a module with a function for each program, which takes a connection."""
    programs = [program for programs in page.values() for program in programs]
    heads = [f"{define.format(number)}:\n" for number in range(len(programs))]
    return "import haclient.aio\n" + "\n".join(
        head + textwrap.indent(program, "    ") for head, program in zip(heads, programs, strict=True)
    )


@pytest.mark.slow
def test_pyright_finds_no_fault_in_the_programs_of_the_docs(tmp_path: Path) -> None:
    files = {
        "blocking": functions(BLOCKING, "def block_{}(connection: haclient.Connection) -> None"),
        "asyncio": functions(ASYNCIO, "async def block_{}(connection: haclient.aio.Connection) -> None"),
        **{f"recipe_{number}": program for number, (program,) in enumerate(sections("recipes.md").values())},
        "health": sections("health.md")["The program"][0],
    }
    for name, text in files.items():
        (tmp_path / f"page_{name}.py").write_text(text)
    configuration = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "reportRedeclaration": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    pyright = Path(sys.executable).with_name("basedpyright")
    command = [pyright, "--project", tmp_path, "--pythonpath", sys.executable]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
