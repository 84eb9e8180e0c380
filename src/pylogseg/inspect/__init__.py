"""One function per segment: checks, counts, decoded files, searches."""
