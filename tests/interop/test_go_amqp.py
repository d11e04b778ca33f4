"""go-amqp's own integration tests, with our broker.

All except ``TestDrainingLink``, which drains a link with a credit of 0 and waits for an answer. proton,
the engine of the member, answers a drain only if credit remains
(``docs/internals/decisions/drain-without-credit.md``).
"""

from __future__ import annotations

import asyncio
import os

from tests.interop.installed import GO_AMQP, needs_go_amqp
from tests.members import Member

pytestmark = needs_go_amqp

# The tests that need a broker; the others are unit tests of go-amqp.
_TESTS = (
    "TestIntegration",
    "TestMultipleSe",
    "TestConcurrentSessions",
    "TestDialWithCancelled",
    "TestNewSessionWithCancelled",
    "TestNewReceiverWithCancelled",
    "TestReceiverModeFirst",
    "TestReceivingLots",
    "TestSenderExactlyOnce",
    "TestSenderNullValue",
)


async def test_they_pass(broker: Member) -> None:
    pattern = f"^({'|'.join(_TESTS)})"
    process = await asyncio.create_subprocess_exec(
        GO_AMQP,
        "-test.v",
        "-test.timeout=100s",
        "-test.run",
        pattern,
        env={**os.environ, "AMQP_BROKER_ADDR": f"amqp://{broker.address}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    printed = output.decode()
    assert process.returncode == 0, printed
    passed = [line.split()[2] for line in printed.splitlines() if line.startswith("--- PASS")]
    assert {"TestIntegrationReceiverModeSecond", "TestSenderExactlyOnce"} <= set(passed)
    assert all(any(name.startswith(test) for name in passed) for test in _TESTS)
    assert "--- FAIL" not in printed
    assert "--- SKIP" not in printed
