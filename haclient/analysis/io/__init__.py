"""Input and output of the analysis: the Spark session, ingestion, batches of a stream, tables."""
