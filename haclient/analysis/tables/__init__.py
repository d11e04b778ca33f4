"""The transforms from lines to tables: one module per table, and ``build`` for all of them."""
