"""Model and options in, the training step out: `train`, `eval` and `predict` over one state.

train = model.train -> loss -> differentiate -> optimizer, counters, new buffers
eval  = model.infer -> loss over the first `rows`, correct, count
predict = model.infer
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from aotrain.autodiff import Request, differentiate
from aotrain.errors import Diagnostic, InputError, UnsupportedModelError, UsageError, raise_if_any
from aotrain.importer.model import Model, Origin
from aotrain.plan import Role
from aotrain.step.graph import Graph
from aotrain.step.loss import Loss
from aotrain.step.names import ROWS, check_model
from aotrain.step.optimizer import emit_updates, slots
from aotrain.step.options import DEFAULT_HYPER, StepOptions, check
from aotrain.step.output import is_zeros
from aotrain.step.program import EntryFunction, StateTensor, TrainStep
from aotrain.step.resolve import no_float_output, resolve


def build(model: Model, options: StepOptions | None = None) -> TrainStep:
    """The training step of `model`.

    Raises:
        UsageError: an option that makes no sense, or that does not suit the model (AOT-S00x).
        InputError: an input without elements (AOT-S012).
        UnsupportedModelError: nothing to train (AOT-S001, AOT-S011), no float output (AOT-S005), a
            name that the step needs itself (AOT-S010), a missing gradient (AOT-G00x).
    """
    options = options or StepOptions()
    raise_if_any(_empty_inputs(model), InputError)
    raise_if_any(no_float_output(model), UnsupportedModelError)
    loss, usage = None, check(options)
    if not usage:
        loss, usage = resolve(model, options.loss)
    unsupported = check_model(model, DEFAULT_HYPER.get(options.optimizer.kind, ()))
    raise_if_any([*usage, *unsupported], UsageError if usage else UnsupportedModelError)
    assert loss
    return _Builder(model, options, loss).build()


def _empty_inputs(model: Model) -> list[Diagnostic]:
    """A model may be fed nothing; a training step may not."""
    return [
        Diagnostic(
            "AOT-S012",
            f"dimension {spec.shape.index(0)} of input '{spec.name}' is 0: nothing to train on",
            hint="export it with its real size",
        )
        for spec in model.inputs
        if 0 in spec.shape
    ]


class _Builder:
    """One build: the pieces that the three entry points share."""

    def __init__(self, model: Model, options: StepOptions, loss: Loss) -> None:
        self.model, self.loss, self.optimizer = model, loss, options.optimizer.kind
        self.hyper = options.optimizer.resolved()
        self.seed = options.seed
        self.state: list[StateTensor] = []
        self.notes = list(loss.notes)
        self.origins = dict(model.origins)
        self.weights = [p.name for p in (*model.parameters, *model.buffers)]
        self.trainable = [p.name for p in model.parameters if p.role is Role.TRAINABLE]
        target = (loss.target,) if loss.target else ()
        self.inputs = (*model.inputs, *target)
        self.names = [s.name for s in model.inputs]

    def build(self) -> TrainStep:
        """All entry points in one module, beside the kernels that the model brought."""
        made = (self._train(), self._eval(), self._predict())
        functions = {
            g: f
            for g, f in self.model.module.functions.items()
            if g.name_hint not in ("train", "infer")
        }
        functions |= {tvm.ir.GlobalVar(entry.name): function for entry, function in made}
        return TrainStep(
            module=tvm.IRModule(functions),
            entries=tuple(entry for entry, _ in made),
            state=tuple(self.state),
            inputs=self.inputs,
            hyper=self.hyper,
            origins=self.origins,
            labels=self.loss.classes,
            ignore_index=self.loss.ignored_label,
            notes=tuple(self.notes),
        )

    def _train(self) -> tuple[EntryFunction, relax.Function]:
        forward, names = self._forward_with_loss()
        wrt = tuple(forward.params[names.index(t)] for t in self.trainable)
        inherited: dict[str, Origin] = {}
        value = _results(forward)[0]
        if not isinstance(value, relax.Var):
            raise self._no_influence()
        request = Request(value, wrt)
        function = differentiate(forward, [request], origins=self.origins, inherited=inherited)
        self.origins |= inherited

        graph = self._graph()
        loss, *rest = graph.inline(function)
        buffers, found = rest[: len(self.model.buffers)], rest[len(self.model.buffers) :]
        gradients = self._reached(graph, dict(zip(self.trainable, found, strict=True)))
        self.state = self._initial_state(list(gradients))
        env = dict(zip(names, function.params, strict=True))
        for tensor in self.state:
            if tensor.name not in env:
                value = tensor.value
                env[tensor.name] = graph.param(tensor.name, value.shape, value.dtype.name)
        env |= {h: graph.param(h, (), "float32") for h in self.hyper}

        graph.origin = Origin("Loss", self.loss.kind)
        results = {"loss": _as_float32(graph, loss)}
        new = emit_updates(graph, self.optimizer, env, gradients)
        new |= {b.name: v for b, v in zip(self.model.buffers, buffers, strict=True)}
        graph.origin = Origin("Counter", "step")
        new |= _count(graph, env)
        results |= {s.name: new[s.name] for s in self.state if s.name in new}

        params = [*(s.name for s in self.state), *self.hyper, *(s.name for s in self.inputs)]
        return self._finish("train", graph, params, env, results)

    def _reached(self, graph: Graph, gradients: dict[str, relax.Expr]) -> dict[str, relax.Expr]:
        """The gradients but those that are zero since no path leads to the loss.

        Such a parameter stays as it is, without decay, as where PyTorch's `.grad` is None.
        """
        lost = [name for name, g in gradients.items() if is_zeros(graph.values.get(g))]
        if len(lost) == len(gradients):
            raise self._no_influence()
        if lost:
            self.notes.append(f"not trained, for the loss does not depend on it: {', '.join(lost)}")
        return {name: g for name, g in gradients.items() if name not in lost}

    def _no_influence(self) -> UnsupportedModelError:
        message = "no trainable parameter has an influence on the loss"
        where = f"output '{self.loss.fed.name}'"
        return UnsupportedModelError(Diagnostic("AOT-S011", message, where))

    def _initial_state(self, trained: list[str]) -> list[StateTensor]:
        """Parameters, buffers, slots, counters, in that order."""
        tensors = (*self.model.parameters, *self.model.buffers)
        return [
            *(StateTensor(p.name, p.role, p.value) for p in tensors),
            *slots(self.optimizer, [p for p in tensors if p.name in trained]),
            StateTensor("step", Role.COUNTER, np.zeros((), np.int64)),
            StateTensor("rng", Role.COUNTER, np.array([self.seed, 0], np.uint32)),
        ]

    def _forward_with_loss(self) -> tuple[relax.Function, list[str]]:
        """model.train with the target as last parameter -> (loss, *new_buffers); its parameters."""
        function = copy_with_new_vars(self.model.module["train"])
        names = [*self.names, *self.weights, "rng"]
        params, graph = list(function.params), self._graph()
        results = graph.inline(function)
        count = len(self.model.outputs)
        target = self._target(graph)
        graph.origin = Origin("Loss", self.loss.kind)
        loss = self.loss.emit(graph, results[:count], target)
        if target is not None:
            params, names = [*params, target], [*names, self.inputs[-1].name]
        return graph.finish(params, [loss, *results[count:]], "forward"), names

    def _eval(self) -> tuple[EntryFunction, relax.Function]:
        graph, env, outputs = self._infer()
        target, rows = self._target(graph), graph.param(ROWS, (), "int32")
        graph.origin = Origin("Loss", self.loss.kind)
        loss = self.loss.emit(graph, outputs, target, rows)
        results = {"loss": _as_float32(graph, loss)}
        if self.loss.classes and target is not None:
            counts = self.loss.emit_counts(graph, outputs, target, rows)
            results |= dict(zip(("correct", "count"), counts, strict=True))
        env |= {ROWS: rows} | ({self.inputs[-1].name: target} if target is not None else {})
        params = [*self.weights, *(s.name for s in self.inputs), ROWS]
        return self._finish("eval", graph, params, env, results)

    def _predict(self) -> tuple[EntryFunction, relax.Function]:
        graph, env, outputs = self._infer()
        results = {s.name: v for s, v in zip(self.model.outputs, outputs, strict=True)}
        return self._finish("predict", graph, [*self.weights, *self.names], env, results)

    def _infer(self) -> tuple[Graph, dict[str, relax.Var], list[relax.Expr]]:
        function = copy_with_new_vars(self.model.module["infer"])
        graph = self._graph()
        outputs = graph.inline(function)
        return graph, dict(zip([*self.names, *self.weights], function.params, strict=True)), outputs

    def _graph(self) -> Graph:
        return Graph(self.origins)

    def _target(self, graph: Graph) -> relax.Var | None:
        target = self.loss.target
        return graph.param(target.name, target.shape, target.dtype) if target else None

    def _finish(
        self,
        name: str,
        graph: Graph,
        params: Sequence[str],
        env: dict[str, relax.Var],
        results: dict[str, relax.Expr],
    ) -> tuple[EntryFunction, relax.Function]:
        function = graph.finish([env[p] for p in params], list(results.values()), name)
        return EntryFunction(name, tuple(params), tuple(results)), function


def _count(graph: Graph, env: dict[str, relax.Var]) -> dict[str, relax.Expr]:
    """step + 1, and rng = (seed, step + 1)."""
    one, next_step = relax.const(1, "int64"), relax.const(np.array([0, 1], np.uint32))
    return {
        "step": graph.emit(relax.op.add(env["step"], one), "new.step"),
        "rng": graph.emit(relax.op.add(env["rng"], next_step), "new.rng"),
    }


def _as_float32(graph: Graph, loss: relax.Expr) -> relax.Expr:
    """The loss as the float32 scalar that the contract promises."""
    if loss.ty.shape.values:
        loss = graph.emit(relax.op.reshape(loss, ()), "loss.scalar")
    if str(loss.ty.dtype) != "float32":
        loss = graph.emit(relax.op.astype(loss, "float32"), "loss.float32")
    return loss


def _results(function: relax.Function) -> list[relax.Expr]:
    """The fields of the Tuple that a function made by `Graph.finish` returns."""
    return list(function.body.blocks[-1].bindings[-1].value.fields)
