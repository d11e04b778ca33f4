"""The cluster URL and its options, parsed once.  Pure."""
