"""Tables of records in formats of other programs: audit them, and write them."""
