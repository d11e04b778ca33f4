"""Fuzzing of bytes that a peer, an operator or a disk may supply.

``make fuzz`` runs Atheris (libFuzzer over Python's coverage) on each target. ``test_corpus.py`` runs
the stored inputs, and seeds of valid traffic, as plain tests.
"""
