"""Who is alive, and which queue lives where: the four tables and the rules that change them."""
