"""Walk a file of batches: windows of good batches, with gaps for the damage between them."""
