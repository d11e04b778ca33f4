"""State shared by the connections of a factory: parameters, events, and the thread of blocking calls."""
