"""`repair`: cut out damage, or replace it from replicas."""
