"""Many logs in several log directories: settings, loading, background work, compaction, an orderly end."""
