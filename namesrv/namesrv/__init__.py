"""The daemon: a NameServer for message brokers."""
