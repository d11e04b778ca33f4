"""Decides which clients a member lets in, and when."""
