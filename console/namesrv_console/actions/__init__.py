"""Actions that operators may take in the console, with --actions: previewed, confirmed by name, and audited."""
