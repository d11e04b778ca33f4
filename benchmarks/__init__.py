"""Benchmarks (scripts) and the laboratory: storms with real connections and in virtual time."""
