"""Row blocks, their sources, and their classes."""
