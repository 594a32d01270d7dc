"""ONNX operator type in, converter out: one table, a file a family.

Keys are operator types of ONNX's own domain; "domain::Type" for others.
"""

from aotrain.importer.converters import (
    activation,
    control,
    conv,
    elementwise,
    indexing,
    linear,
    normalization,
    pooling,
    recurrent,
    reduction,
    resize,
    shape,
)
from aotrain.importer.node import Converter

CONVERTERS: dict[str, Converter] = {
    **elementwise.TABLE,
    **activation.TABLE,
    **reduction.TABLE,
    **shape.TABLE,
    **indexing.TABLE,
    **linear.TABLE,
    **conv.TABLE,
    **pooling.TABLE,
    **resize.TABLE,
    **normalization.TABLE,
    **recurrent.TABLE,
    **control.TABLE,
}
