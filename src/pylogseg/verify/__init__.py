"""Is what lies on a disk whole? Checks of segments, of the files beside them, and of what is missing."""
