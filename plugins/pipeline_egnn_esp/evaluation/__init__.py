"""Errors of matrices and of their levels."""
