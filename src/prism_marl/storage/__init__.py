"""Files: read safely and written atomically, kept to save time, and sealed with a checksum."""
