"""What pages show, worked out from what is known: pure functions, without requests, clock or I/O."""
