"""The route tables: who is alive, which queue lives where, and the rules that change them."""
