"""Agama."""
