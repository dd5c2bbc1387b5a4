"""Two cores side by side: what both must say, operations written down, and histories replayed from text."""
