"""Tables of records in formats of others: whether they are right, and how they become so."""
