"""The strings that calls accept, as types, so that a type checker rejects any other."""

from __future__ import annotations

from typing import Literal

Precision = Literal["highest", "high", "medium"]
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
Mixed = Literal["copy"] | None
Verify = bool | Literal["repair"]
Trans = Literal["N", "T", "C"]
Rounded = Literal["int8"]
Activation = Literal["none", "relu", "leaky_relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu"]
