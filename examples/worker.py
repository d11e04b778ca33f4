"""A worker that acknowledges each job when it is done, and stops only between two jobs.

    HACLIENT_URL=amqp://127.0.0.1:5672 python examples/worker.py

docs/configuration.md lists the other variables: HACLIENT_USER, HACLIENT_PASSWORD_FILE, any option.
A job is a number: its seconds of work.  Send some to the queue "jobs", and stop the worker with Ctrl-C or
SIGTERM.  Jobs are delivered at least once, so a job must be safe to repeat: if the connection is lost before
``accept``, the next consumer that receives the job does it again.
"""

from __future__ import annotations

import signal
import threading
import time

import haclient
from haclient.errors import ReceiveTimeout, StaleDelivery


def main() -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    with (
        haclient.ConnectionFactory.from_env() as factory,
        factory.connect() as connection,
        # Hold one job and prefetch one; the others go to other workers.
        connection.create_receiver("jobs", credit=1) as receiver,
    ):
        print(f"waiting for jobs at {connection.endpoint}", flush=True)
        while not stop.is_set():
            try:
                delivery = receiver.receive(timeout=0.5)
            except ReceiveTimeout:
                continue  # look whether to stop
            work(delivery)
    print("stopped", flush=True)


def work(delivery: haclient.Delivery) -> None:
    job = delivery.body
    if not isinstance(job, int | float) or job < 0:
        delivery.reject("amqp:decode-error", "a job is a number of seconds")
        print(f"rejected {job!r}", flush=True)
        return
    print(f"working for {job} s", flush=True)
    time.sleep(job)
    try:
        delivery.accept()
    except StaleDelivery:
        print("done, but the connection was lost meanwhile: the job comes again, to somebody", flush=True)
    else:
        print("done", flush=True)


if __name__ == "__main__":
    main()
