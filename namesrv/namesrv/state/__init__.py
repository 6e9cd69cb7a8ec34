"""State besides the tables: recent events, watches of clients, expected brokers, messages to systemd."""
