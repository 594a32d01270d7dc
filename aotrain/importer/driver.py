"""ONNX file in, `Model` out: read, bind dimensions, choose parameters, walk twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax

from aotrain.errors import AotError, Diagnostic
from aotrain.importer import dims
from aotrain.importer.batch import Generaliser
from aotrain.importer.builder import FunctionBuilder, Value, dtype_of, shape_of
from aotrain.importer.classify import classify, merged, stored_floats
from aotrain.importer.model import Model, Origin, Parameter
from aotrain.importer.options import ImportOptions
from aotrain.importer.problems import raise_all
from aotrain.importer.read import Source, decode, read
from aotrain.importer.walk import Outcome, Poison, Scope, Walker
from aotrain.plan import Role, TensorSpec

RNG = TensorSpec("rng", (2,), "uint32")


@dataclass
class Analysis:
    """Everything that is known before a walk."""

    source: Source
    inputs: dims.Inputs
    initializers: dict[str, np.ndarray]
    roles: dict[str, Role]
    copies: dict[str, np.ndarray]  # of initializers that the exporter merged
    notes: tuple[str, ...]  # on the roles
    values: dict[str, np.ndarray] = field(default_factory=dict)  # of parameters, as met


@dataclass
class Walk:
    """One function's raw material."""

    walker: Walker
    variables: dict[str, relax.Var]
    parameters: dict[str, relax.Var]
    rng: relax.Var
    outputs: list[Value]


def load(source: Path | str | onnx.ModelProto, options: ImportOptions | None = None) -> Model:
    """Import a model.

    Raises InputError for a broken or incomplete input (missing file, unbound dimension, glob
    without a match) and UnsupportedModelError for a valid model that we cannot import; each
    carries every problem found. Opsets 8 to the newest that the installed onnx knows.
    """
    analysis = _analyse(source, options or ImportOptions())
    adjust = _generaliser(analysis)
    walks = {train: _walk(analysis, train, adjust) for train in (True, False)}
    problems = [d for walk in walks.values() for d in walk.walker.problems]
    if adjust is not None:
        problems += adjust.stuck(analysis.source.graph, walks[False].walker.record)
    raise_all(problems)
    names = [n for n in analysis.roles if n in analysis.values]
    parameters = [n for n in names if analysis.roles[n] is not Role.BUFFER]
    buffers = [n for n in names if analysis.roles[n] is Role.BUFFER]
    functions = {
        name: _finish(walks[train], parameters, buffers, train).with_attr("global_symbol", name)
        for name, train in (("train", True), ("infer", False))
    }
    return Model(
        name=analysis.source.name,
        source=analysis.source.model,
        inputs=analysis.inputs.specs,
        outputs=_outputs(analysis.source.graph, walks[False]),
        parameters=tuple(_parameter(analysis, n) for n in parameters),
        buffers=tuple(_parameter(analysis, n) for n in buffers),
        module=relax.transform.Normalize()(tvm.IRModule(functions)),
        origins=walks[False].walker.builder.origins | walks[True].walker.builder.origins,
        notes=(
            *(adjust.notes if adjust else ()),
            *_merge_notes(analysis),
            *analysis.notes,
            *_dropout_notes(walks[True].walker.salt),
            *_not_finite_notes(analysis.values),
        ),
    )


def outcomes(
    source: Path | str | onnx.ModelProto, options: ImportOptions | None = None
) -> tuple[list[Outcome], list[Diagnostic]]:
    """What becomes of every node, and problems that belong to none; for `check`."""
    analysis = _analyse(source, options or ImportOptions())
    walk = _walk(analysis, True, _generaliser(analysis))
    return walk.walker.outcomes, walk.walker.problems


def _analyse(source: Path | str | onnx.ModelProto, options: ImportOptions) -> Analysis:
    read_source = read(source)
    graph = read_source.graph
    problems: list[Diagnostic] = []
    inputs = None
    try:
        inputs = dims.bind(graph, options)
    except AotError as error:
        problems += error.diagnostics
    arrays = {t.name: decode(t) for t in graph.initializer}
    stored = stored_floats(graph, arrays)
    copies = merged(graph, stored)
    data = {i.name for i in dims.data_inputs(graph)}
    found = classify(graph, data, stored, copies, options)
    raise_all([*problems, *found.problems])
    assert inputs is not None
    return Analysis(read_source, inputs, arrays, found.roles, copies, found.notes)


def _generaliser(analysis: Analysis) -> Generaliser | None:
    """Compares with a walk at the file's own batch, where another was asked for."""
    inputs = analysis.inputs
    if inputs.baked is None:
        return None
    at_old = Analysis(
        analysis.source, inputs, analysis.initializers, analysis.roles, analysis.copies, ()
    )
    record = _walk(at_old, False, None, inputs.baked).walker.record
    return Generaliser(record, inputs.old, inputs.new)


def _walk(
    analysis: Analysis,
    train: bool,
    adjust: Generaliser | None,
    specs: Sequence[TensorSpec] | None = None,
) -> Walk:
    builder = FunctionBuilder()
    variables = {
        s.name: builder.param(s.name, s.shape, s.dtype, Origin("Input", s.name))
        for s in specs or analysis.inputs.specs
    }
    rng = builder.param(RNG.name, RNG.shape, RNG.dtype, Origin("Input", RNG.name))
    parameters: dict[str, relax.Var] = {}

    def lift(name: str, array: np.ndarray) -> relax.Var:
        """The parameter's variable; its first value counts."""
        if name not in parameters:
            analysis.values.setdefault(name, array)
            origin = Origin("Parameter", name)
            parameters[name] = builder.param(name, array.shape, array.dtype.name, origin)
            if analysis.roles[name] is Role.BUFFER:
                walker.buffer_of[parameters[name].name] = name
        return parameters[name]

    walker = Walker(builder, train, rng, lift, analysis.roles)
    walker.copies = {n: a for n, a in analysis.copies.items() if n in analysis.roles}
    if adjust is not None:
        walker.adjust = adjust
    scope = Scope(dict(variables), analysis.source.opsets)
    for name, array in analysis.initializers.items():
        scope.values[name] = walker.settle(name, array)
    for name, var in variables.items():
        scope.values[name] = walker.settle(name, var)
    walker.graph(analysis.source.graph.node, scope)
    outputs = [scope.values.get(o.name) for o in analysis.source.graph.output]
    healthy = [None if isinstance(v, Poison) else v for v in outputs]
    return Walk(walker, variables, parameters, rng, healthy)


def _finish(
    walk: Walk, parameters: Sequence[str], buffers: Sequence[str], train: bool
) -> relax.Function:
    builder = walk.walker.builder
    weights = [walk.parameters[n] for n in (*parameters, *buffers)]
    results = [_expression(builder, v) for v in walk.outputs]
    params = [*walk.variables.values(), *weights]
    if train:
        params.append(walk.rng)
        results += [_expression(builder, walk.walker.new_buffers[n]) for n in buffers]
    return builder.finish(params, results)


def _expression(builder: FunctionBuilder, value: Value) -> relax.Expr:
    if isinstance(value, np.ndarray):
        return builder.constant(value)
    assert value is not None and not isinstance(value, list)
    return value


def _merge_notes(analysis: Analysis) -> tuple[str, ...]:
    count = sum(name in analysis.values for name in analysis.copies)
    if not count:
        return ()
    what = "1 tensor" if count == 1 else f"{count} tensors"
    return (f"{what} that the exporter had merged with an equal one trained apart",)


def _dropout_notes(count: int) -> tuple[str, ...]:
    """On what an export for inference does not show: see `converters/normalization.py`."""
    if not count:
        return ()
    nodes = "1 Dropout node draws" if count == 1 else f"{count} Dropout nodes draw"
    return (f"{nodes} at random in training, whatever training_mode says; none in eval, predict",)


def _not_finite_notes(values: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """One line a weight, since the first loss will be NaN."""
    counts = {name: value.size - np.isfinite(value).sum() for name, value in values.items()}
    return tuple(
        f"warning: {count} of {values[name].size} values of weight '{name}' are NaN or infinite"
        for name, count in counts.items()
        if count
    )


def _outputs(graph: onnx.GraphProto, walk: Walk) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(o.name, shape_of(v), dtype_of(v))
        for o, v in zip(graph.output, walk.outputs, strict=True)
    )


def _parameter(analysis: Analysis, name: str) -> Parameter:
    return Parameter(name, analysis.values[name], analysis.roles[name])
