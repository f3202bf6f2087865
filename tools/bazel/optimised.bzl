"""Tests that compute much in their own files or in headers: they are compiled with optimisation, all others without it."""

OPTIMISED = [
]
