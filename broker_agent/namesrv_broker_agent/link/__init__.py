"""The links of one agent, one to each NameServer: connect, register, send heartbeats, and begin again."""
