"""One HTML file from the analysis' tables: ``data`` cuts them in Spark, ``render`` writes the page."""
