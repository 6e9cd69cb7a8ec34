"""The running server: start, stop, housekeeping, and the consequences of changed tables."""
