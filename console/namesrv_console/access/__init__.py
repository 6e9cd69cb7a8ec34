"""Access to the console: middleware that decides about each request, and the pages to sign in and out."""
