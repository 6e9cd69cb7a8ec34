"""The key-value configuration: in memory, and on disk."""
