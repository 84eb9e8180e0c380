"""A file of batches as good windows with damage between them."""
