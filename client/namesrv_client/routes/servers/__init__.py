"""The NameServers of a client: the connection to each, and the order in which they are tried."""
