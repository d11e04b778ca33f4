"""Pages, schemas and signatures that are generated from tables in the code."""
