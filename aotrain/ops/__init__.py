"""Operators of our own in Relax, for what it lacks or computes unlike a trainer; one family a file."""
