"""Relax function and requests in, the function with its gradients appended out."""

from aotrain.autodiff.reverse import Request, differentiable, differentiate
from aotrain.autodiff.vjp import NoGradientError, Vjp, rule

__all__ = ["NoGradientError", "Request", "Vjp", "differentiable", "differentiate", "rule"]
