"""The life of a member: start, follow, promote, lead, step down."""
