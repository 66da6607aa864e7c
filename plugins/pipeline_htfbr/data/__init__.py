"""Points of surfaces: their sources, known surfaces, and the coordinates of molecules."""
