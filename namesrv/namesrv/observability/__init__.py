"""Observability: counts, health, and the HTTP port that shows both."""
