"""What people read: the summary, the page with its charts, and the table on standard output."""
