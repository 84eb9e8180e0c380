"""The files beside the record batches: each as bytes in, values out, and back. Nothing here opens a file."""
