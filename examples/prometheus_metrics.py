"""Serve the metrics of a connection for Prometheus.

    pip install '.[metrics]'
    python examples/prometheus_metrics.py [URL [PORT]]
    curl -s localhost:9464/metrics | grep haclient_

Kill the primary meanwhile, and look again.  Ctrl-C ends the program.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time

from prometheus_client import start_http_server

import haclient
from haclient.telemetry.prometheus import PrometheusSink


def main(url: str, port: int) -> None:
    server, _ = start_http_server(port, "127.0.0.1")
    print(f"metrics are at http://127.0.0.1:{server.server_port}/metrics", flush=True)
    with haclient.connect(url, on_event=PrometheusSink()) as connection:
        sender = connection.create_sender("numbers")
        for number in itertools.count(1):
            sender.send(number)
            print(f"sent {number}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
    with contextlib.suppress(KeyboardInterrupt):
        main(where, int(sys.argv[2]) if len(sys.argv) > 2 else 9464)
