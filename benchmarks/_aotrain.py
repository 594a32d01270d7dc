"""Run as a worker: an artifact and a batch in, `Session.step` timed."""

from __future__ import annotations

import sys

import numpy as np

from aotrain.runtime import Session
from benchmarks._worker import serve


def main(artifact: str, batch: str, threads: str) -> None:
    """`batch` holds x and y; they are copied into the loader's block at every step."""
    with np.load(batch) as file, Session(artifact, threads=int(threads)) as session:
        inputs = dict(zip(session.inputs(), (file["x"], file["y"]), strict=True))
        serve(lambda: session.step(**inputs))


if __name__ == "__main__":
    main(*sys.argv[1:])
