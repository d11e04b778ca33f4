"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Hypothesis fails an example that takes over 0.2 s; on a busy machine that says nothing about the code.
settings.register_profile("haclient", deadline=None)
settings.load_profile("haclient")
