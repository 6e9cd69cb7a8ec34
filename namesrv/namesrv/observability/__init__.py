"""What can be seen of a running server from outside: its counts, its health, and the HTTP port that shows both."""
