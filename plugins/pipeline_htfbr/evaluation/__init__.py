"""Errors of a fitted surface."""
