"""Write the tables as one HTML report: ``data`` selects rows in Spark, ``render`` writes the page."""
