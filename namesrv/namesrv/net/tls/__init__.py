"""TLS of accepted connections."""
