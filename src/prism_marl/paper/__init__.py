"""The published numbers, and our own beside them: one file for each table or figure."""
