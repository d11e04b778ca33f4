"""Reading and writing at the rim of the analysis: the session, ingestion, batches of a stream, output."""
