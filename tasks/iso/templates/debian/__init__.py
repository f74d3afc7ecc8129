"""Preseed."""
