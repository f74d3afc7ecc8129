"""Kickstart."""
