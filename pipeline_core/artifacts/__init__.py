"""Files that stages write and read: atomic, with checksums and provenance."""
