"""Stage `graph`: links that each layer moves."""
