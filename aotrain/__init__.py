"""aotrain: an ahead-of-time training compiler."""
