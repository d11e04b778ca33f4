"""The contract of telemetry for writers and readers: the permitted lines.

``schemas/`` has a JSON Schema (2020-12) for each type of line, which ``scripts/generate`` writes.  ``check``
validates a line against those files, ``paths`` all lines of some paths.
``vectors.jsonl`` has lines, valid and not, with the expected verdict on each.

docs/telemetry.md has the policy of versions.
"""
