"""The report for people: the summary, the page with its charts, and the table on standard output."""
