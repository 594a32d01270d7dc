"""One dispatch of a kernel in, the words of a SPIR-V 1.3 module for Vulkan 1.1 out.

module        ids, types, constants, sections -> words
arithmetic    scalar operators, casts, elementary functions
expressions   TIR expressions -> ids
statements    TIR statements -> structured control flow
emit          the entry point: built-ins, push constants, the block
"""

from aotrain.targets.spirv.emit import Shader, emit

__all__ = ["Shader", "emit"]
