"""Every converter against onnxruntime, a table a family: `infer` of one-node models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from math import prod

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors
from tvm import relax

from aotrain.importer import load
from aotrain.importer.model import Model
from tests.importer.evaluate import call, compile_infer
from tests.importer.graphs import Const, NodeCase

C = NodeCase
INTS = np.array([[3, -7, 5], [-2, 9, 4]], np.int64)
INTS2 = np.array([[2, 3, -4], [5, -3, 3]], np.int64)
BOOLS = np.array([True, False, True])
IDS = np.array([[0, 2, -1], [1, -3, 2]], np.int64)
MISSING = (ort_errors.NotImplemented, ort_errors.Fail, ort_errors.InvalidGraph)


def d(*shape: int) -> np.ndarray:
    """A float64 input of this shape."""
    return np.random.default_rng(prod(shape)).normal(size=shape)


def f(*values: float) -> Const:
    return Const(values if len(values) > 1 else values[0], "float32")


UNARY = "Abs Neg Exp Floor Ceil Round Sign Sin Cos Tan Atan Sinh Cosh Asinh Erf Tanh Sigmoid Relu"
UNARY += " Softsign Softplus HardSwish Mish Identity Elu Selu Celu LeakyRelu HardSigmoid Gelu"
UNARY += " ThresholdedRelu Shrink"
ELEMENTWISE = [
    *(C(op, [(2, 3)]) for op in UNARY.split()),
    *(C(op, [(2, 3)], positive=True) for op in ("Log", "Sqrt", "Reciprocal")),
    C("Acos", [np.array([-0.9, 0.1, 0.7], np.float32)]),
    C("Asin", [np.array([-0.9, 0.1, 0.7], np.float32)]),
    C("Atanh", [np.array([-0.9, 0.1, 0.7], np.float32)]),
    C("Acosh", [np.array([1.1, 2.0, 30.0], np.float32)]),
    C("Round", [np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4], np.float32)]),
    C("Softplus", [np.array([-100.0, 0.0, 100.0], np.float32)]),
    C("Elu", [(2, 3)], {"alpha": 0.5}),
    C("Selu", [(2, 3)], {"alpha": 2.0, "gamma": 1.5}),
    C("Celu", [(2, 3)], {"alpha": 0.7}),
    C("LeakyRelu", [(2, 3)], {"alpha": 0.3}),
    C("HardSigmoid", [(2, 3)], {"alpha": 0.4, "beta": 0.3}),
    C("Gelu", [(2, 3)], {"approximate": "tanh"}),
    C("ThresholdedRelu", [(2, 3)], {"alpha": 0.3}),
    C("Shrink", [(2, 3)], {"lambd": 0.4, "bias": 0.1}),
    C("PRelu", [(2, 3, 4), (3, 1)]),
    *(C(op, [(2, 3), (2, 3)]) for op in ("Add", "Sub", "Mul", "Div")),
    *(C(op, [(2, 1, 3), (4, 1)]) for op in ("Add", "Sub", "Mul", "Div", "Greater", "Less")),
    *(C(op, [INTS, INTS2]) for op in ("Div", "Mod", "Equal", "LessOrEqual", "GreaterOrEqual")),
    C("Mod", [INTS, INTS2], {"fmod": 1}),
    C("Mod", [(2, 3), (2, 3)], {"fmod": 1}),
    *(C("Pow", [(2, 3), f(p)]) for p in (1.0, 2.0, 3.0, -1.0)),
    *(C("Pow", [(2, 3), f(p)], positive=True) for p in (0.5, 1.7, -0.3)),
    C("Pow", [(2, 3), (2, 3)], positive=True),
    C("Pow", [(2, 3), Const(2)]),
    C("Pow", [INTS, Const(3)]),
    C("Pow", [(2, 3), f(2.0, 0.0, 3.0)]),
    *(C(op, [BOOLS, BOOLS[::-1].copy()]) for op in ("And", "Or", "Xor")),
    C("Not", [BOOLS]),
    *(C(op, [(2, 3), (3,), (1, 1)]) for op in ("Max", "Min", "Sum", "Mean")),
    C("Max", [(2, 3)]),
    C("Where", [BOOLS, (2, 3), (1,)]),
    C("Clip", [(2, 3), f(-0.5), f(0.5)]),
    C("Clip", [(2, 3), None, f(0.5)]),
    C("Clip", [(2, 3), f(-0.1)]),
    C("Clip", [(2, 3)], {"min": -0.3, "max": 0.2}, 10),
    C("IsNaN", [np.array([1, np.nan, np.inf], np.float32)]),
    C("IsInf", [np.array([1, np.nan, np.inf, -np.inf], np.float32)]),
    C("IsInf", [np.array([np.inf, -np.inf, 0], np.float32)], {"detect_negative": 0}),
    C("IsInf", [np.array([np.inf, -np.inf, 0], np.float32)], {"detect_positive": 0}),
    C("BitShift", [INTS.astype(np.uint8), np.uint8([1, 2, 3])], {"direction": "LEFT"}),
    C("BitShift", [INTS.astype(np.uint8), np.uint8([1, 2, 3])], {"direction": "RIGHT"}),
    *(C(op, [INTS, INTS2]) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    C("BitwiseNot", [INTS]),
    C("Cast", [(2, 3)], {"to": 7}),
    C("Cast", [INTS], {"to": 1}),
    C("Cast", [INTS - 3], {"to": 9}),
    C("Cast", [BOOLS], {"to": 1}),
    C("CastLike", [INTS, (1,)]),
    C("QuantizeLinear", [(2, 3), f(0.1), Const(3, "int8")]),
    C("QuantizeLinear", [(2, 3), f(0.1)]),
    C("QuantizeLinear", [(2, 3, 2), f(0.1, 0.2, 0.3), Const([1, 2, 3], "uint8")], {"axis": 1}),
    C("DequantizeLinear", [np.int8([[1, -3, 9]]), f(0.1), Const(2, "int8")]),
    C("DequantizeLinear", [np.int8([[1, -3, 9]]), f(0.1, 0.2, 0.3)], {"axis": -1}),
    C("Swish", [(2, 3)], {"alpha": 1.5}, 24),
]
REDUCED = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
REDUCTIONS = [
    *(
        C(f"Reduce{op}", [(2, 3, 4), *axes], attrs, opset, positive=op == "LogSum")
        for op in REDUCED
        for axes, attrs, opset in (
            ([Const([1])], {"keepdims": 0}, 21),
            ([Const([-1, 0])], {}, 21),
            ([], {"axes": [0, -1]} if op != "Sum" else {}, 11),
            ([], {}, 21),
        )
    ),
    C("ReduceSum", [(2, 3)], {"noop_with_empty_axes": 1}),
    C("ReduceLogSumExp", [np.array([[1000.0, 1000.0], [-1e4, -1e4]], np.float32), Const([1])]),
    C("ReduceMean", [INTS, Const([1])]),
    *(
        C(op, [np.array([[1, 3, 3], [2, 2, 0]], np.float32)], {"axis": 1, **attrs})
        for op in ("ArgMax", "ArgMin")
        for attrs in ({}, {"keepdims": 0}, {"select_last_index": 1})
    ),
    *(
        C("CumSum", [(2, 3), Const(-1)], {"exclusive": e, "reverse": r})
        for e in (0, 1)
        for r in (0, 1)
    ),
    C("TopK", [(3, 5), Const([2])], {"axis": 1}, outputs=2),
    C("TopK", [(3, 5), Const([2])], {"axis": 0, "largest": 0}, outputs=2),
    *(
        C(op, [(2, 3, 4)], {"axis": a}, o)
        for op in ("Softmax", "LogSoftmax")
        for a, o in ((1, 13), (1, 11), (-1, 13), (0, 12))
    ),
    C("Hardmax", [(2, 3, 4)], {"axis": 1}, 13),
    C("Hardmax", [(2, 3, 4)], {"axis": 1}, 11),
]
SHAPES = [
    *(C("Reshape", [(2, 3, 4), Const(t)]) for t in ([6, 4], [-1, 2], [0, -1], [2, 0, 2, 2])),
    *(C("Flatten", [(2, 3, 4)], {"axis": a}) for a in (0, 1, 2, -1, 3)),
    C("Squeeze", [(1, 3, 1), Const([0])]),
    C("Squeeze", [(1, 3, 1)]),
    C("Squeeze", [(1, 3, 1)], {"axes": [-1]}, 11),
    C("Unsqueeze", [(2, 3), Const([0, -1])]),
    C("Unsqueeze", [(2, 3)], {"axes": [1, 3]}, 11),
    C("Transpose", [(2, 3, 4)]),
    C("Transpose", [(2, 3, 4)], {"perm": [1, 0, 2]}),
    C("Concat", [(2, 3), (2, 1), (2, 2)], {"axis": -1}),
    C("Split", [(6, 2), Const([1, 2, 3])], {"axis": 0}, outputs=3),
    C("Split", [(2, 7)], {"axis": 1, "num_outputs": 3}, outputs=3),
    C("Split", [(4, 2)], {"split": [1, 3]}, 11, outputs=2),
    C("Expand", [(3, 1), Const([2, 1, 4])]),
    C("Tile", [(2, 3), Const([2, 3])]),
    C("Shape", [(2, 3)]),
    C("Shape", [(2, 3, 4)], {"start": 1, "end": -1}),
    C("Size", [(2, 3)]),
    C("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2}),
    C("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    C("SpaceToDepth", [(1, 2, 4, 6)], {"blocksize": 2}),
    *(
        C("Pad", [(2, 3, 4), Const([0, 1, 2, 0, 2, 1])], {"mode": m})
        for m in ("constant", "reflect", "edge", "wrap")
    ),
    C("Pad", [(2, 3), Const([1, 0, 0, 2]), f(1.5)]),
    C("Pad", [(2, 3), Const([1, 2]), None, Const([-1])]),
    C("Pad", [(3, 4), Const([-1, 1, 0, -2])]),
    C("Pad", [(2, 3)], {"pads": [1, 0, 0, 2], "value": 0.5}, 10),
    C("Trilu", [(2, 4, 4)]),
    C("Trilu", [(3, 4), Const(-1)], {"upper": 0}),
    C("EyeLike", [(3, 4)], {"k": 1}),
]
INDEXING = [
    C("Gather", [(4, 3), IDS]),
    C("Gather", [(4, 3), IDS], {"axis": 1}),
    C("Gather", [(4, 3), IDS.astype(np.int32)], {"axis": -1}),
    C("Gather", [(4, 3), Const(1)]),
    C("Gather", [(4, 3), Const(-1)], {"axis": 1}),
    C("GatherElements", [(3, 3), IDS], {"axis": 0}),
    C("GatherElements", [(2, 3), Const([[0, -1, 1]])], {"axis": 1}),
    C("GatherND", [(2, 3, 4), np.array([[0, 1], [1, -1]], np.int64)]),
    C("GatherND", [(2, 3, 4), np.array([[1], [0]], np.int64)], {"batch_dims": 1}),
    C("GatherND", [(2, 3), Const([[0, 0], [1, -1]])]),
    *(
        C("ScatterElements", [(3, 3), IDS, (2, 3)], {"axis": 0, "reduction": r}, 18)
        for r in ("add", "mul", "max", "min")
    ),
    C("ScatterElements", [(3, 4), Const([[0, -1]]), (1, 2)], {"axis": 1}),
    C("ScatterND", [(4, 3), np.array([[0], [2]], np.int64), (2, 3)]),
    C("ScatterND", [(4, 3), Const([[0], [-1]]), (2, 3)], {"reduction": "add"}),
    C("Slice", [(4, 5), Const([1, 0]), Const([3, 4])]),
    C("Slice", [(4, 5), Const([-3]), Const([2**31]), Const([-1]), Const([2])]),
    C("Slice", [(4, 5), Const([-1]), Const([-(2**31)]), Const([0]), Const([-1])]),
    C("Slice", [(4, 5), Const([10, 3]), Const([0, 0]), Const([0, 1]), Const([-2, -1])]),
    C("Slice", [(4, 5)], {"starts": [1], "ends": [-1], "axes": [1]}, 9),
    C("OneHot", [IDS, Const(3), f(0.5, 2.0)]),
    C("OneHot", [np.array([0, 5, -1]), Const([4]), f(0.0, 1.0)], {"axis": 0}),
    C("Compress", [(3, 2), Const(BOOLS, "bool")], {"axis": 0}),
    C("Compress", [(3, 2), Const(BOOLS, "bool")]),
    C("ReverseSequence", [(4, 3), Const([1, 2, 4])], {"time_axis": 0, "batch_axis": 1}),
    C("ReverseSequence", [(3, 4, 2), Const([1, 2, 4])], {"time_axis": 1, "batch_axis": 0}),
]
LINEAR = [
    C("MatMul", [(2, 3), (3, 4)]),
    C("MatMul", [(3,), (3, 4)]),
    C("MatMul", [(2, 3), (3,)]),
    C("MatMul", [(2, 1, 3, 4), (5, 4, 2)]),
    C("Gemm", [(2, 3), (3, 4), (4,)]),
    C("Gemm", [(3, 2), (4, 3), (2, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    C("Gemm", [(2, 3), (3, 4)]),
    *(
        C("Einsum", args, {"equation": e})
        for e, args in (
            ("ij,jk->ik", [(2, 3), (3, 4)]),
            ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
            ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
            ("...ij->...ji", [(2, 3, 4)]),
            ("ij->", [(2, 3)]),
            ("i,j->ij", [(2,), (3,)]),
            ("ij,ij->i", [(2, 3), (2, 3)]),
            ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 2)]),
            ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
            ("bij,j->bi", [(2, 3, 4), (4,)]),
        )
    ),
]
W = {"kernel_shape": [3, 3]}
CONV = [
    C("Conv", [(1, 2, 5, 6), (3, 2, 3, 3), (3,)]),
    C("Conv", [(1, 2, 5, 6), (3, 2, 3, 3)], {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    C("Conv", [(1, 2, 7, 7), (3, 2, 3, 3)], {"dilations": [2, 1]}),
    C("Conv", [(1, 4, 5, 5), (6, 2, 3, 3), (6,)], {"group": 2}),
    C("Conv", [(1, 4, 5, 5), (4, 1, 3, 3)], {"group": 4, "pads": [1, 1, 1, 1]}),
    *(
        C("Conv", [(1, 1, 5, 6), (1, 1, 3, 2)], {"auto_pad": p, "strides": [2, 2]})
        for p in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    C("Conv", [(2, 3, 8), (4, 3, 3), (4,)], {"pads": [2, 0], "dilations": [2]}),
    C("Conv", [(1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (3,)], {"strides": [1, 2, 1]}),
    C("ConvTranspose", [(1, 2, 3, 4), (2, 3, 3, 3), (3,)]),
    C("ConvTranspose", [(1, 2, 3, 4), (2, 3, 3, 3)], {"strides": [2, 3], "pads": [1, 0, 0, 2]}),
    C("ConvTranspose", [(1, 2, 3, 4), (2, 1, 3, 3)], {"strides": [2, 2], "output_padding": [1, 1]}),
    C("ConvTranspose", [(1, 2, 3, 4), (2, 1, 3, 3)], {"dilations": [2, 1]}),
    C("ConvTranspose", [(1, 4, 3, 3), (4, 2, 2, 2), (4,)], {"group": 2}),
    C("ConvTranspose", [(1, 1, 3, 3), (1, 1, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    C("ConvTranspose", [(1, 1, 3, 3), (1, 1, 3, 3)], {"strides": [3, 2], "output_shape": [10, 8]}),
    C("ConvTranspose", [(1, 2, 5), (2, 3, 3), (3,)], {"strides": [2], "pads": [1, 0]}),
    C("ConvTranspose", [(1, 1, 2, 2, 2), (1, 2, 2, 2, 2)], {"strides": [2, 2, 2]}),
    C("MaxPool", [(1, 2, 5, 6)], W),
    C("MaxPool", [(1, 2, 5, 6)], {**W, "pads": [1, 0, 1, 2], "strides": [2, 2]}),
    C("MaxPool", [(1, 2, 6, 6)], {**W, "strides": [2, 2], "ceil_mode": 1}),
    C("MaxPool", [(1, 2, 7, 7)], {**W, "dilations": [2, 2]}),
    C("MaxPool", [(1, 2, 5, 5)], {**W, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    C("MaxPool", [(1, 2, 7)], {"kernel_shape": [3], "strides": [2]}),
    C("MaxPool", [(1, 1, 4, 4, 4)], {"kernel_shape": [2, 2, 2]}),
    *(
        C("AveragePool", [(1, 2, 6, 6)], {**W, "strides": [2, 2], **attrs}, 22)
        for attrs in (
            {},
            {"pads": [1, 1, 1, 1]},
            {"pads": [1, 0, 1, 2], "count_include_pad": 1},
            {"ceil_mode": 1},
            {"ceil_mode": 1, "pads": [1, 1, 0, 0]},
            {"ceil_mode": 1, "pads": [1, 1, 1, 1], "count_include_pad": 1},
            {"auto_pad": "SAME_UPPER"},
        )
    ),
    C("AveragePool", [(1, 1, 7, 7)], {**W, "dilations": [2, 2]}, 22),
    C("AveragePool", [(1, 2, 7)], {"kernel_shape": [3], "pads": [1, 1]}),
    C("AveragePool", [(1, 1, 4, 4, 4)], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    C("LpPool", [(1, 2, 5, 5)], {**W, "p": 3}),
    C("LpPool", [(1, 2, 5, 5)], {**W, "pads": [1, 1, 1, 1]}),
    *(C(op, [(2, 3, 4, 5)]) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    C("GlobalAveragePool", [(2, 3, 4)]),
]
NORMS = [
    C(
        "BatchNormalization",
        [(2, 3, 4, 5), (3,), (3,), (3,), (3,)],
        {"epsilon": 0.01},
        positive=True,
    ),
    C("BatchNormalization", [(4, 3), (3,), (3,), (3,), (3,)], positive=True),
    C("LayerNormalization", [(2, 3, 4), (4,), (4,)]),
    C("LayerNormalization", [(2, 3, 4), (3, 4)], {"axis": 1, "epsilon": 0.1}),
    C("LayerNormalization", [(2, 3, 4), (4,), (4,)], outputs=3),
    C("RMSNormalization", [(2, 3, 4), (4,)], {}, 23),
    C("InstanceNormalization", [(2, 3, 4, 5), (3,), (3,)]),
    C("InstanceNormalization", [(2, 3, 4), (3,), (3,)], {"epsilon": 0.1}),
    C("GroupNormalization", [(2, 4, 3, 3), (4,), (4,)], {"num_groups": 2}),
    C("LayerNormalization", [d(2, 3, 4), d(4), d(4)]),
    C("LayerNormalization", [d(2, 3, 4), d(3, 4)], {"axis": 1, "epsilon": 0.1}),
    C("RMSNormalization", [d(2, 3, 4), d(4)], {}, 23),
    C("InstanceNormalization", [d(2, 3, 4), d(3), d(3)], {"epsilon": 0.1}),
    C("GroupNormalization", [d(2, 4, 3, 3), d(4), d(4)], {"num_groups": 2}),
    C("LpNormalization", [(2, 3, 4)], {"axis": 1, "p": 1}),
    C("LpNormalization", [(2, 3, 4)]),
    C("LRN", [(2, 5, 3, 3)], {"size": 3, "alpha": 0.1, "beta": 0.6, "bias": 1.5}),
    C("LRN", [(5, 5, 3, 3)], {"size": 4}),
    C("MeanVarianceNormalization", [(2, 3, 4, 5)]),
    C("Dropout", [(2, 3), f(0.5), Const(False, "bool")]),
    C("Dropout", [(2, 3)], {"ratio": 0.3}, 10),
]
RESIZE = [
    *(
        C(
            "Resize",
            [(1, 2, 4, 5), None, f(1, 1, *scales)],
            {"mode": m, "coordinate_transformation_mode": c},
        )
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for scales in ((2.0, 2.0), (0.6, 1.7))
    ),
    *(
        C("Resize", [(1, 1, 4, 4), None, None, Const([1, 1, 7, 3])], {"nearest_mode": r})
        for r in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    C(
        "Resize",
        [(1, 1, 4, 4), None, None, Const([1, 1, 7, 3])],
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    ),
    C("Resize", [(1, 1, 8, 8), None, f(1, 1, 0.5, 0.4)], {"mode": "linear", "antialias": 1}),
    C("Resize", [(1, 1, 8, 8), None, f(1, 1, 0.5, 0.4)], {"mode": "cubic", "antialias": 1}),
    C("Resize", [(1, 1, 4, 4), None, f(2, 2)], {"mode": "linear", "axes": [2, 3]}),
    C("Resize", [(1, 1, 4, 4), f(1, 1, 2, 2)], {"mode": "linear"}, 10),
    C("Upsample", [(1, 1, 3, 4), f(1, 1, 2, 3)], {"mode": "nearest"}, 9),
    C("Upsample", [(1, 1, 3, 4)], {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}, 8),
]
GRID = np.random.default_rng(3).uniform(-1.2, 1.2, (1, 3, 2, 2)).astype(np.float32)
RESIZE += [
    C("GridSample", [(1, 2, 4, 5), GRID], {"mode": m, "padding_mode": p, "align_corners": a}, 20)
    for m, p, a in (
        ("linear", "zeros", 0),
        ("linear", "border", 1),
        ("nearest", "zeros", 0),
        ("cubic", "reflection", 1),
    )
]
RECURRENT = [
    *(
        C(
            op,
            [(3, 2, 4), (d, g * 5, 4), (d, g * 5, 5), (d, g * 10), None, *states],
            {"hidden_size": 5, "direction": name, **attrs},
            14,
            outputs=2 + (op == "LSTM"),
        )
        for op, g, attrs in (
            ("LSTM", 4, {}),
            ("GRU", 3, {}),
            ("GRU", 3, {"linear_before_reset": 1}),
            ("RNN", 1, {}),
        )
        for name, d, states in (
            ("forward", 1, []),
            ("reverse", 1, [(1, 2, 5)]),
            ("bidirectional", 2, [(2, 2, 5)]),
        )
    ),
    C(
        "LSTM",
        [(3, 2, 4), (1, 20, 4), (1, 20, 5), None, None, (1, 2, 5), (1, 2, 5), (1, 15)],
        {"hidden_size": 5},
        14,
        outputs=3,
    ),
    C(
        "LSTM",
        [(3, 2, 4), (1, 20, 4), (1, 20, 5)],
        {
            "hidden_size": 5,
            "activations": ["HardSigmoid", "Softsign", "Relu"],
            "activation_alpha": [0.3],
        },
        14,
        outputs=3,
    ),
    C(
        "RNN",
        [(1, 2, 4), (1, 5, 4), (1, 5, 5)],
        {"hidden_size": 5, "activations": ["Relu"]},
        14,
        outputs=2,
    ),
]
FUNCTIONS = [
    C("Range", [Const(1), Const(7), Const(2)]),
    C("Attention", [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)], {}, 23),
    C("Attention", [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)], {"is_causal": 1}, 23),
    C("RotaryEmbedding", [(1, 2, 3, 4), (3, 2), (3, 2), np.array([[0, 1, 2]])], {}, 23),
    C("NegativeLogLikelihoodLoss", [(3, 4), np.array([0, 3, 1])], {"reduction": "mean"}),
    C("SoftmaxCrossEntropyLoss", [(3, 4), np.array([0, 3, 1])]),
    C("CenterCropPad", [(4, 5), Const([2, 7])], {}, 18),
]
FAMILIES = {
    "elementwise": ELEMENTWISE,
    "reduction": REDUCTIONS,
    "shape": SHAPES,
    "indexing": INDEXING,
    "linear": LINEAR,
    "conv": CONV,
    "normalization": NORMS,
    "resize": RESIZE,
    "recurrent": RECURRENT,
    "functions": FUNCTIONS,
}


def expected(case: NodeCase) -> list[np.ndarray]:
    """onnxruntime's outputs; ONNX's reference evaluator's where it has no kernel or differs."""
    proto = case.model()
    # onnxruntime rounds the resized length, and knows no even window.
    differs = case.attrs.get("coordinate_transformation_mode") == "align_corners"
    differs |= case.op == "LRN" and case.attrs["size"] % 2 == 0
    if not differs:
        with contextlib.suppress(*MISSING):
            session = onnxruntime.InferenceSession(proto.SerializeToString())
            return session.run(None, case.feeds())
    return ReferenceEvaluator(proto).run(None, case.feeds())


Family = tuple[list[Model | Exception], relax.VirtualMachine]


@pytest.fixture(scope="module")
def compiled() -> Callable[[str], Family]:
    """A family is compiled at once: a module costs more than a function."""

    @functools.cache
    def compile_family(family: str) -> Family:
        found: list[Model | Exception] = []
        for case in FAMILIES[family]:
            try:
                found.append(load(case.model()))
            except Exception as error:  # reported by the case that it belongs to
                found.append(error)
        return found, compile_infer([m for m in found if isinstance(m, Model)])

    return compile_family


@pytest.mark.parametrize(
    ("family", "index"),
    [
        pytest.param(family, i, id=case.id)
        for family, cases in FAMILIES.items()
        for i, case in enumerate(cases)
    ],
)
def test_converter(family: str, index: int, compiled: Callable[[str], Family]) -> None:
    found, machine = compiled(family)
    case, model = FAMILIES[family][index], found[index]
    if isinstance(model, Exception):
        raise model
    place = sum(isinstance(m, Model) for m in found[:index])
    got = call(machine, place, model, case.feeds())
    for have, want in zip(got, expected(case), strict=True):
        assert have.shape == np.shape(want)
        assert have.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-5)
