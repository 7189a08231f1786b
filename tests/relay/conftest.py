"""Puts this directory on the path: tests below it share `functional_programs`."""
