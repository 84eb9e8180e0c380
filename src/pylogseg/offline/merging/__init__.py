"""`merge`: one log out of several replicas."""
