"""A packed plan, kernels and initial state in, the folder `model.aot/` out, and back.

    model.aot/
      kernels.so          machine code: aot_kernel_abi.h
      plan.bin            tensors, launches, constants as tables: what the loader replays
      state.safetensors   initial state, in the form of a checkpoint
      manifest.json       the same for people and tools; the loader does not read it
      aotrun.h            its manual, for programs that embed it
      source.onnx         the user's model, weights in state.safetensors: what `export` starts from
      aotrun libaotrun.so the loader: copying the folder to the device is the whole deployment

The same input, options and versions give the same bytes: no time stamps, no paths.
"""

from aotrain.artifact.read import Artifact, read
from aotrain.artifact.statefile import Checkpoint
from aotrain.artifact.statefile import load as read_checkpoint
from aotrain.artifact.write import write

__all__ = ["Artifact", "Checkpoint", "read", "read_checkpoint", "write"]
