"""The tokens that a member accepts."""
