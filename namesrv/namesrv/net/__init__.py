"""The server's side of connections: sockets, frames, memory, deadlines, fair scheduling."""
