"""The contract of telemetry: what a line must be, for whoever writes lines and whoever reads them.

``event_types`` says which keys each type has; ``json_schema`` writes that down as JSON Schema (2020-12), a
file for each type in ``schemas/``; ``check`` judges a line by those files, ``paths`` all lines of some paths.
``vectors.jsonl`` has lines, valid and not, with what is to be said of each.

docs/telemetry.md has the policy of versions.
"""
