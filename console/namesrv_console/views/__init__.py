"""The values that pages show, computed from the cluster: pure functions, without requests, clock or I/O."""
