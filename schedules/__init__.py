"""Kernel schedules, one package per kind of target."""
