"""The tests; they mirror the source tree, and import shared models as `tests.models`."""
