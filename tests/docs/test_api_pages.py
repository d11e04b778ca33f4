"""``docs/blocking.md`` and ``docs/asyncio.md`` read alike, and what they show works."""

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
from tests.docs.pages import DOCS, ROOT, URL, sections
from tests.peers import primary, url
from tests.peers.primary import Primary

BLOCKING, ASYNCIO = sections("blocking.md"), sections("asyncio.md")


def without_async(program: str) -> str:
    """An asyncio program as the blocking one that it is the twin of."""
    return re.sub(r"\b(async|await) ", "", program).replace("haclient.aio", "haclient")


def test_both_have_the_same_sections_in_the_same_order() -> None:
    assert list(BLOCKING) == list(ASYNCIO)
    assert len(BLOCKING) > 8


@pytest.mark.parametrize("heading", BLOCKING)
def test_the_examples_are_the_same_apart_from_async_and_await(heading: str) -> None:
    assert [without_async(program) for program in ASYNCIO[heading]] == BLOCKING[heading]


def test_what_is_said_is_nearly_the_same() -> None:
    """Paragraphs that differ are few: what is different on purpose."""
    blocking, asyncio = ((DOCS / page).read_text().split("\n\n") for page in ("blocking.md", "asyncio.md"))
    prose = [paragraph for paragraph in blocking if "```" not in paragraph]
    assert sum(paragraph not in asyncio for paragraph in prose) <= 6


@pytest.fixture
def broker(haclient_module_broker: Broker) -> Broker:
    """The member that the examples use, without messages."""
    haclient_module_broker.restore()
    return haclient_module_broker


@asynccontextmanager
async def publisher() -> AsyncIterator[Primary]:
    """A member with topics, which ``broker_stub`` has not, and a message on its way."""
    async with primary() as peer:
        peer.put("news", "hello")
        yield peer


def test_the_examples_of_the_blocking_page_run(broker: Broker) -> None:
    names: dict[str, Any] = {"haclient": haclient}
    with in_thread(publisher()) as peer:
        for heading, programs in BLOCKING.items():
            where = url(peer) if heading == "Subscribe" else broker.url
            with haclient.connect(where, client_id="me") as connection:
                for program in programs:
                    if heading != "Connect":
                        names["connection"] = connection
                    exec(compile(program.replace(URL, where), "blocking.md", "exec"), names)  # noqa: S102


async def test_the_examples_of_the_asyncio_page_run(broker: Broker) -> None:
    names: dict[str, Any] = {"haclient": haclient}
    async with publisher() as peer:
        for heading, programs in ASYNCIO.items():
            where = url(peer) if heading == "Subscribe" else broker.url
            async with aio.connect(where, client_id="me") as connection:
                for program in programs:
                    if heading != "Connect":
                        names["connection"] = connection
                    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                    code = compile(program.replace(URL, where), "asyncio.md", "exec", flags=flags)
                    running = eval(code, names)  # noqa: S307
                    if inspect.isawaitable(running):
                        await running


def functions(page: Mapping[str, list[str]], define: str) -> str:
    """A module with a function of each program, which is given a connection."""
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
    }
    for name, text in files.items():
        (tmp_path / f"page_{name}.py").write_text(text)
    configuration = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "reportRedeclaration": "none"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    pyright = Path(sys.executable).with_name("basedpyright")
    command = [pyright, "--project", tmp_path, "--pythonpath", sys.executable]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
