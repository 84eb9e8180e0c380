"""Files, as the rest sees them: local ones and those behind a URL. Knows no format."""
