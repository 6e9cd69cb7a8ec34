"""The pages: each module offers a `Page`, and app.py lists them."""
