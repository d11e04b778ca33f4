"""Request some lines in capitals, in blocking calls."""

import sys

from proton import Message
from proton.utils import BlockingConnection, SyncRequestResponse

connection = BlockingConnection(sys.argv[1], timeout=30)
client = SyncRequestResponse(connection, sys.argv[2])
try:
    for request in sys.argv[3:]:
        response = client.call(Message(body=request))
        print(f"{request} => {response.body}", flush=True)
finally:
    connection.close()
