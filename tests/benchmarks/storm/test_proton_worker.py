"""The worker of proton's connections survives an error that ends proton's own event loop."""

from __future__ import annotations

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from benchmarks.storm.proton_worker import Later, Survivor


class HeartbeatOfTheDead(MessagingHandler):
    """Reproduces a socket that ended in the same turn of the loop in which its heartbeat was due."""

    def on_start(self, event: proton.Event) -> None:
        container = event.container
        dead = container.selectable()
        dead._transport = None
        dead.expired()
        dead.terminate()
        dead.update()
        container.schedule(0.01, Later(container.stop))


def test_a_heartbeat_of_a_socket_that_is_gone_ends_the_loop_of_proton() -> None:
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'capacity'"):
        Container(HeartbeatOfTheDead()).run()


def test_the_worker_goes_on_after_it_and_reports() -> None:
    container = Container(HeartbeatOfTheDead())
    defects: list[str] = []
    container.global_handler = Survivor(container.global_handler, lambda error: defects.append(str(error)))
    container.run()
    assert defects == ["'NoneType' object has no attribute 'capacity'"]
