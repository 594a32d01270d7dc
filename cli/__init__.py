"""The command line: argv in, exit code out. One file per command, imported when it is called."""

from .app import main

__all__ = ["main"]
