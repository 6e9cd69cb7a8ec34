"""What a running server knows besides its tables: recent events, who waits for routes, which brokers to expect."""
