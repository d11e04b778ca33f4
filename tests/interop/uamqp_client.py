"""Sends and receives with uAMQP, a client whose engine is not proton's. It supports only TLS.

/usr/bin/python3 uamqp_client.py CA HOST PORT ADDRESS COUNT
"""

# ruff: noqa: T201 - a test reads the output

import sys

import uamqp
from uamqp import authentication

ca, host, port, address = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
count = int(sys.argv[5])


def anonymous() -> authentication.SASLAnonymous:
    return authentication.SASLAnonymous(host, port=port, verify=ca)


target = f"amqps://{host}:{port}/{address}"
sending = uamqp.SendClient(target, auth=anonymous())
sending.queue_message(*(uamqp.Message(f"message {number}") for number in range(count)))
states = sending.send_all_messages(close_on_done=True)
print("sent", sum(state == uamqp.constants.MessageState.SendComplete for state in states))

receiving = uamqp.ReceiveClient(target, auth=anonymous(), prefetch=count, timeout=30_000)
left = count
for message in receiving.receive_messages_iter():
    print("message", next(message.get_data()).decode())
    message.accept()
    left -= 1
    if not left:
        break
receiving.close()
