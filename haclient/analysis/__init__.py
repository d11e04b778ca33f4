"""Analyse telemetry: PySpark over the lines that ``haclient.telemetry`` writes.

Every transform is a function from DataFrames to a DataFrame, in native Spark SQL expressions.
None of them uses ``sparkContext`` or an RDD, so all run on Spark Connect as well.
``io`` reads and writes, ``tables`` holds the transforms, and ``tables.build`` combines them.
The analysis needs the extra ``spark`` and Java 17 or newer.
"""
