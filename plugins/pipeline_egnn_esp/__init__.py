"""Networks for Hamiltonians of density-functional theory, on graphs split over ranks."""
