"""Measurements against a floor measured in the same run: medians of several runs, never asserted in tests."""
