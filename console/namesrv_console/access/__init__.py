"""Who may see the console, and who may act in it: middleware around its pages, and the pages to sign in and out."""
