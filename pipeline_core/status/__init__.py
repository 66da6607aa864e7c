"""State and progress of stages, read from small files beside the artifacts."""
