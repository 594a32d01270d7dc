"""An exported model and its artifact in; the largest difference of their outputs out, or an error.

The reference is another implementation: onnxruntime where it is installed, else onnx's reference
evaluator. The other side is the artifact's own `predict` in the loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from aotrain.errors import Diagnostic, InputError
from aotrain.runtime import Session

TOLERANCE = 1e-3
"""Largest |difference| over the largest |output|: float32 sums in another order, layer upon layer,
stay below it; a weight that was forgotten or put elsewhere does not."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Comparison:
    """`error` is the largest |difference| of an output over its largest |value|."""

    error: float
    evaluator: str


def compare(artifact: Path, checkpoint: Path, model: Path, seed: int = 0) -> Comparison:
    """Evaluate `model` and `artifact` with the state of `checkpoint` on the same random input.

    Raises `InputError` (AOT-A204) where an output differs by more than `TOLERANCE`.
    """
    with Session(artifact) as session:
        session.load(checkpoint)
        batch = random_inputs(session.inputs("predict"), seed)
        ours = session.predict(**batch)
    with _beside(model, inference_form(onnx.load(model, load_external_data=False))) as form:
        evaluator, evaluate = reference(form)
        theirs = in_its_own_batch(evaluate, onnx.load(model, load_external_data=False), batch)
    worst = 0.0
    for name, expected in theirs.items():
        actual = ours[name][: len(expected)] if expected.ndim else ours[name]
        scale = max(float(np.abs(expected).max(initial=0)), 1e-6)
        error = float(np.abs(actual.astype(np.float64) - expected).max(initial=0)) / scale
        if not error <= TOLERANCE:  # NaN too
            message = f"the exported model differs from the artifact by {error:.1e} of its output"
            where = f"output '{name}', evaluated by {evaluator}"
            hint = "nothing was written; --no-check writes it all the same"
            raise InputError(Diagnostic("AOT-A204", message, where, hint))
        worst = max(worst, error)
    return Comparison(worst, evaluator)


def random_inputs(like: Mapping[str, np.ndarray], seed: int) -> Arrays:
    """A batch of the shapes and dtypes of `like`.

    Floats are standard normal; integers are 0 or 1, which are indices into any table of two rows.
    """
    draw = np.random.default_rng(seed)
    made = {}
    for name, value in like.items():
        if np.issubdtype(value.dtype, np.floating):
            made[name] = draw.standard_normal(value.shape).astype(value.dtype)
        else:
            made[name] = draw.integers(0, 2, value.shape).astype(value.dtype)
    return made


def inference_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as it predicts: BatchNormalization with its running statistics, no dropout."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
        elif node.op_type == "Dropout" and len(node.input) > 2:
            del node.input[2:]
    produced = {name for node in model.graph.node for name in node.output}
    given = {value.name for value in [*model.graph.input, *model.graph.initializer]}
    kept = [output for output in model.graph.output if output.name in produced | given]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


@contextmanager
def _beside(path: Path, model: onnx.ModelProto) -> Iterator[Path]:
    """`model` in a file beside `path`, where its external data is found, for a while."""
    form = path.with_name(f".{path.name}.check")
    try:
        form.write_bytes(model.SerializeToString())
        yield form
    finally:
        form.unlink(missing_ok=True)


def reference(path: Path) -> tuple[str, Callable[[Arrays], Arrays]]:
    """Name and function of the best evaluator here for the model at `path`.

    It is read from the file: in one piece, weights included, a model may be too large for protobuf.
    """
    graph = onnx.load(path, load_external_data=False).graph
    names = [output.name for output in graph.output]
    fast = _onnxruntime(path)

    def evaluate(batch: Arrays) -> Arrays:
        found = None if fast is None else _attempt(lambda: fast.run(names, batch))
        if found is None:
            from onnx.reference import ReferenceEvaluator

            found = ReferenceEvaluator(onnx.load(path)).run(None, batch)
        return dict(zip(names, found, strict=True))

    return "onnx.reference" if fast is None else "onnxruntime", evaluate


def _onnxruntime(path: Path) -> Any:
    """A session; None where it is not installed, or has no kernel for a type (float64 Conv)."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # nothing on the user's terminal: an old IR, a missing kernel
    return _attempt(
        lambda: onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    )


def _attempt(run: Callable[[], Any]) -> Any:
    """What `run` gives; None where onnxruntime lacks a kernel, or a kernel lacks a case.

    The latter shows when it runs: a dilated Conv with auto_pad, an output padding beyond a stride.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as failures

    try:
        return run()
    except (failures.NotImplemented, failures.InvalidArgument):
        return None


def in_its_own_batch(
    evaluate: Callable[[Arrays], Arrays], model: onnx.ModelProto, batch: Arrays
) -> Arrays:
    """Outputs of `evaluate` on as many rows of `batch` as the file's own leading dimension holds.

    A file whose batch is baked in (often 1) was compiled for more rows, and still takes its own.
    """
    rows = {name: leading_dimension(model, name) for name in batch}
    return evaluate({name: value[: rows[name]] for name, value in batch.items()})


def leading_dimension(model: onnx.ModelProto, name: str) -> int | None:
    """The static first dimension of the graph's input `name`; None where it is symbolic."""
    for value in model.graph.input:
        if value.name == name and value.type.tensor_type.shape.dim:
            first = value.type.tensor_type.shape.dim[0]
            return first.dim_value if first.HasField("dim_value") else None
    return None
