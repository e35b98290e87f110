"""Row blocks and where they come from, and what labels and groups they have."""
