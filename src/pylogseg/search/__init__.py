"""Which records hold something: text, bytes, regular expressions."""
