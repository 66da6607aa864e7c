"""Hierarchical Tucker trees on GPUs (Qiu, Magoulès and Peláez, doi:10.4203/ccc.12.2.4)."""
