"""The contract of telemetry for writers and readers: the permitted lines.

``event_types`` lists the keys of each type.  ``json_schema`` writes them as JSON Schema (2020-12), a file for
each type in ``schemas/``.  ``check`` validates a line against those files, ``paths`` all lines of some paths.
``vectors.jsonl`` has lines, valid and not, with the expected verdict on each.

docs/telemetry.md has the policy of versions.
"""
