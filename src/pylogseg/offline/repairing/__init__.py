"""`repair`: what is damaged is cut out, or taken from replicas."""
