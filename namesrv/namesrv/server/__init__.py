"""The running server: start, stop, housekeeping, and what happens when the tables change."""
