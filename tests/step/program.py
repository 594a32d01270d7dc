"""Models made by hand, and one entry point of a step run on TVM's own virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import tvm
from tvm import relax

from aotrain.importer.model import Model, Origin, Parameter
from aotrain.plan import Role, TensorSpec
from aotrain.step import TrainStep

Body = Callable[..., Sequence[relax.Expr]]  # (bb, *inputs, *parameters, *buffers[, rng])


def model(
    inputs: Mapping[str, tuple[tuple[int, ...], str]],
    parameters: Mapping[str, np.ndarray],
    body: Body,
    *,
    outputs: Sequence[str] = ("output",),
    buffers: Mapping[str, np.ndarray] | None = None,
    infer: Body | None = None,
    frozen: Sequence[str] = (),
) -> Model:
    """A `Model` whose train function is `body`, and infer function `infer` (default `body`).

    `body` returns outputs, then new buffers; without buffers it serves both functions.
    """
    buffers = buffers or {}
    module = relax.BlockBuilder()
    specs: list[TensorSpec] = []
    origins: dict[str, Origin] = {}
    for name, emit in (("train", body), ("infer", infer or body)):
        params = [relax.Var(n, relax.TensorType(s, d)) for n, (s, d) in inputs.items()]
        for n, value in {**parameters, **buffers}.items():
            params.append(relax.Var(n, relax.TensorType(value.shape, value.dtype.name)))
        rng = [relax.Var("rng", relax.TensorType((2,), "uint32"))] if name == "train" else []
        with module.function(name, params + rng):
            with module.dataflow():
                results = list(emit(module, *params))
                if name == "infer":
                    results = results[: len(outputs)]
                result = module.emit_output(relax.Tuple(results))
            module.emit_func_output(result)
        specs = [
            TensorSpec(n, tuple(int(d) for d in r.ty.shape), str(r.ty.dtype))
            for n, r in zip(outputs, results, strict=False)
        ]
    made = module.get()
    for name in ("train", "infer"):
        for binding in made[name].body.blocks[0].bindings:
            op = getattr(getattr(binding.value, "op", None), "name", "Tuple")
            origins[binding.var.name] = Origin(op, binding.var.name)
    return Model(
        name="by-hand",
        source=onnx.ModelProto(),
        inputs=tuple(TensorSpec(n, s, d) for n, (s, d) in inputs.items()),
        outputs=tuple(specs),
        parameters=tuple(
            Parameter(n, v, Role.FROZEN if n in frozen else Role.TRAINABLE)
            for n, v in parameters.items()
        ),
        buffers=tuple(Parameter(n, v, Role.BUFFER) for n, v in buffers.items()),
        module=made,
        origins=origins,
    )


def mlp(
    weights: Mapping[str, np.ndarray], *, batch: int, ends: str = "", **options: object
) -> Model:
    """x [batch, in] -> relu(x w1 + b1) w2 + b2, then softmax, log_softmax or sigmoid if asked."""

    def body(bb: relax.BlockBuilder, x: relax.Var, *p: relax.Var) -> list[relax.Expr]:
        hidden = bb.emit(relax.op.matmul(x, p[0]), "fc1")
        hidden = bb.emit(relax.op.nn.relu(bb.emit(relax.op.add(hidden, p[1]))), "relu1")
        logits = bb.emit(relax.op.add(bb.emit(relax.op.matmul(hidden, p[2]), "fc2"), p[3]))
        if ends == "sigmoid":
            return [bb.emit(relax.op.sigmoid(logits), "output")]
        if ends:
            return [bb.emit(getattr(relax.op.nn, ends)(logits, axis=-1), "output")]
        return [logits]

    width = weights["w1"].shape[0]
    return model({"x": ((batch, width), "float32")}, weights, body, **options)


class Runner:
    """A step with its state, run with TVM's virtual machine: `train`, `eval` and `predict`."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self.state = {s.name: s.value for s in step.state}
        self.hyper = {n: np.float32(v) for n, v in step.hyper.items()}
        self._machines: dict[str, relax.VirtualMachine] = {}

    def __call__(self, entry: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs of one call; results that are state become the new state."""
        (found,) = [e for e in self.step.entries if e.name == entry]
        values = {**self.state, **self.hyper, **inputs}
        args = [tvm.runtime.tensor(np.asarray(values[p])) for p in found.params]
        results = dict(zip(found.results, self._machine(entry)[entry](*args), strict=True))
        arrays = {name: value.numpy() for name, value in results.items()}
        self.state |= {n: v for n, v in arrays.items() if n in self.state}
        return {n: v for n, v in arrays.items() if n not in self.state}

    def _machine(self, entry: str) -> relax.VirtualMachine:
        """The function `entry`, compiled at its first call."""
        if entry not in self._machines:
            module = tvm.IRModule({entry: self.step.module[entry]})
            built = tvm.compile(relax.transform.LegalizeOps()(module), target="llvm")
            self._machines[entry] = relax.VirtualMachine(built, tvm.cpu())
        return self._machines[entry]
