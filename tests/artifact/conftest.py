"""The toy artifact, as the loader's tests build it."""

from tests.runtime.conftest import toy_artifact

__all__ = ["toy_artifact"]
