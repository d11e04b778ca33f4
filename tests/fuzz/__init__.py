"""Fuzzing: what a peer, an operator or a disk may hand to this code, as bytes.

``make fuzz`` runs Atheris (libFuzzer over Python's coverage) on each target; ``test_corpus.py`` runs what it
has kept, and seeds of valid traffic, as plain tests.
"""
