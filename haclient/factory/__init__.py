"""What the connections of one factory share: how to connect, the events, the thread of blocking calls."""
