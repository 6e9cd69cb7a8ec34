"""What one peer may take from the others: memory, reads, requests."""
