"""A member's life: start, follow a primary, be promoted, serve as primary, step down."""
