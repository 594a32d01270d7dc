"""A loss that suits the model, a function's outputs and the target in; the scalar loss out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from aotrain.ops import loss as ops
from aotrain.ops import pointwise_loss as pointwise
from aotrain.ops.rows import correct, counted, first_rows
from aotrain.plan import TensorSpec
from aotrain.step.graph import Graph
from aotrain.step.options import LossOptions
from aotrain.step.output import behind_sigmoid, behind_softmax, shape


@dataclass(frozen=True)
class Loss:
    """A loss resolved against a model.

    `kind` is one of `options.LOSSES` but not "auto"; `output` the index of the model's output;
    `fed` what feeds the loss: that output, or the logits that `look_through` finds before its
    softmax or sigmoid; `axis` the class axis for cross-entropy; `batch` the rows of a batch.
    """

    options: LossOptions
    kind: str
    output: int
    fed: TensorSpec
    batch: int
    look_through: bool = False
    axis: int = -1
    target: TensorSpec | None = None
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> int | None:
        """Number of classes, for cross-entropy."""
        return self.fed.shape[self.axis] if self.kind == "cross-entropy" else None

    @property
    def ignored_label(self) -> int | None:
        """The label that does not count, for cross-entropy."""
        return self.options.ignore_index if self.kind == "cross-entropy" else None

    @property
    def repeat(self) -> int:
        """Rows of the loss's terms for each row of the batch; 0 where the two do not match."""
        dims = self.target.shape if self.target else self.fed.shape
        return dims[0] // self.batch if dims and dims[0] % self.batch == 0 else 0

    def emit(
        self,
        graph: Graph,
        outputs: Sequence[relax.Expr],
        target: relax.Var | None,
        rows: relax.Var | None = None,
    ) -> relax.Var:
        """The scalar loss (float32, or float64 of a float64 output) over all rows, or over `rows`.

        `outputs` are the model's, computed in `graph`.
        """
        class_weights = self._class_weights()  # one constant, read by two kernels
        terms = self._terms(graph, self._fed(graph, outputs), target, class_weights)
        total = self._sum(graph, terms, rows, "loss.total")
        if self.options.reduction == "sum":
            return total
        if self.kind == "cross-entropy":
            weights = graph.emit(
                ops.label_weight(target, class_weights, **self._ignore), "loss.weights"
            )
            over = self._sum(graph, weights, rows, "loss.weight")
        elif rows is None or not self.repeat:
            count = math.prod(shape(terms))
            if count == 1:
                return total
            over = relax.const(count, ops.wide(self.fed.dtype))
        else:
            wide = ops.wide(self.fed.dtype)
            per_row = relax.const(math.prod(shape(terms)) / self.batch, wide)
            count = graph.emit(relax.op.astype(rows, wide), "loss.rows")
            over = graph.emit(relax.op.multiply(count, per_row), "loss.count")
        return graph.emit(relax.op.divide(total, over), "loss")

    def emit_counts(
        self, graph: Graph, outputs: Sequence[relax.Expr], target: relax.Var, rows: relax.Var
    ) -> tuple[relax.Var, relax.Var]:
        """int32 scalars over the first `rows`: correct predictions, labels not ignored."""
        logits = self._fed(graph, outputs)
        hits = graph.emit(correct(logits, target, axis=self.axis, **self._ignore), "hits")
        valid = graph.emit(counted(target, **self._ignore), "valid")
        return self._sum(graph, hits, rows, "correct"), self._sum(graph, valid, rows, "count")

    def _fed(self, graph: Graph, outputs: Sequence[relax.Expr]) -> relax.Expr:
        output = outputs[self.output]
        if not self.look_through:
            return output
        behind = behind_sigmoid if self.kind == "bce-with-logits" else behind_softmax
        found = behind(graph.values, output)
        assert found, "train and infer end in the same activation"
        return found.value

    def _terms(
        self,
        graph: Graph,
        fed: relax.Expr,
        target: relax.Var | None,
        class_weights: relax.Constant,
    ) -> relax.Expr:
        """Losses per position, [N, d...] or of the output's shape."""
        if self.kind == "output":
            wide = ops.wide(self.fed.dtype)
            same = wide == self.fed.dtype
            return fed if same else graph.emit(relax.op.astype(fed, wide), "loss.terms")
        if self.kind == "cross-entropy":
            smoothing = {"label_smoothing": float(self.options.label_smoothing)}
            call = ops.cross_entropy(
                fed, target, class_weights, axis=self.axis, **self._ignore, **smoothing
            )
        elif self.kind == "huber":
            call = pointwise.huber(fed, target, delta=float(self.options.delta))
        elif self.kind == "bce-with-logits":
            call = pointwise.bce_with_logits(fed, target, self._pos_weight())
        else:
            call = {"mse": pointwise.mse, "l1": pointwise.l1}[self.kind](fed, target)
        return graph.emit(call, "loss.terms")

    def _sum(
        self, graph: Graph, terms: relax.Expr, rows: relax.Var | None, name: str
    ) -> relax.Expr:
        if rows is not None and self.repeat:
            terms = graph.emit(first_rows(terms, rows, repeat=self.repeat), f"{name}.rows")
        return graph.emit(relax.op.sum(terms), name) if shape(terms) else terms

    @property
    def _ignore(self) -> dict[str, int]:
        return {"ignore_index": self.options.ignore_index}

    def _class_weights(self) -> relax.Constant:
        given = self.options.class_weights
        values = np.ones(self.classes or 0) if given is None else np.asarray(given)
        return relax.const(values, ops.wide(self.fed.dtype))

    def _pos_weight(self) -> relax.Constant:
        given = 1.0 if self.options.pos_weight is None else self.options.pos_weight
        return relax.const(np.asarray(given), ops.wide(self.fed.dtype))
