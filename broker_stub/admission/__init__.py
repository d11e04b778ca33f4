"""Admission of clients: which ones a member accepts, and when."""
