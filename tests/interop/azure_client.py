"""Sends and receives with Azure's own client of Service Bus, which puts its token into ``$cbs``.

python azure_client.py HOST PORT KEY-NAME KEY QUEUE COUNT
"""

# ruff: noqa: T201 - a test reads the output

import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage

host, port, name, key, queue, count = sys.argv[1:]
connection_string = f"Endpoint=sb://{host}:{port};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
    with client.get_queue_sender(queue) as sender:
        for number in range(int(count)):  # a list would be one message, which Azure takes apart
            sender.send_messages(ServiceBusMessage(f"message {number}"))
    with client.get_queue_receiver(queue, max_wait_time=20) as receiver:
        for _, message in zip(range(int(count)), receiver, strict=False):
            print(message)
            receiver.complete_message(message)
