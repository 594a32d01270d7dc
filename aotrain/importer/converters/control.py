"""To come."""

from aotrain.importer.node import Converter

TABLE: dict[str, Converter] = {}
