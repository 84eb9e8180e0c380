"""One partition's log owned by a Python program: opening, records in and out, producers, figures."""
