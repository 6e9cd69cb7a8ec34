"""State besides the tables: recent events, clients that wait for routes, brokers to expect."""
