"""One file per command; each has ``run(argv) -> exit code``."""
