"""Many logs in several log directories: settings, loading, background tasks, compaction, clean shutdown."""
