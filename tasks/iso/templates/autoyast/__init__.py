"""AutoYaST."""
