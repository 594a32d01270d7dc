"""Operators of our own in Relax: what it lacks or computes unlike a trainer, a file a family."""
