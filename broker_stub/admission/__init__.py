"""Who is let in, and when."""
