"""uAMQP with our broker: a client in C that shares no code with proton."""

from __future__ import annotations

from pathlib import Path

from tests.certificates import Authority
from tests.examples.program import Program
from tests.interop.installed import SYSTEM_PYTHON, needs_uamqp
from tests.members import Members

pytestmark = needs_uamqp

_PROGRAM = Path(__file__).with_name("uamqp_client.py")


async def test_messages_go_through(tmp_path: Path) -> None:
    certificate = Authority(tmp_path / "authority").issue("127.0.0.1", "localhost", common_name="localhost")
    with Members(tmp_path) as members:
        broker = members.start("alone", role="primary", certificate=certificate)
        host, _, port = broker.address.partition(":")
        command = (SYSTEM_PYTHON, _PROGRAM, certificate.authority.file, host, port, "orders", "200")
        async with Program.of(*command) as program:
            printed = await program.end()
        assert printed.splitlines() == ["sent 200", *(f"message message {number}" for number in range(200))]
        assert broker.depth("orders") == 0
