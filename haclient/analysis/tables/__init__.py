"""Lines in, tables out: one module for each table, and ``build`` for all of them."""
