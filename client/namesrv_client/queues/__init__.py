"""Queues: which there are, which is next, and which consumer has which."""
