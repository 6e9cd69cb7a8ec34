"""The command `namesrvctl`: what operators ask NameServers, and tell them."""
