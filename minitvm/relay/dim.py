"""Dims: the extents in a tensor type."""

from __future__ import annotations

Dim = int
