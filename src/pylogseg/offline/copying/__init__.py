"""`copy`: log directories, also beside a broker that writes."""
