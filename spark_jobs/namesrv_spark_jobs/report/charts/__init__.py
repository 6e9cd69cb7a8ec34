"""The pictures of the report, as inline SVG."""
