"""Handlers of requests, and the table that assigns each request code its handler."""
