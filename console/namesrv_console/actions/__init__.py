"""What operators may change from the console, with --actions: seen first, confirmed by name, and written down."""
