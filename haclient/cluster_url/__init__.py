"""The cluster URL and its options: what the user wrote, parsed once.  Pure."""
