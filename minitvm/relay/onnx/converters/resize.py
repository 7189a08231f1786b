"""ONNX operators that resample: Resize and Upsample.

Along each axis an element of the result is a sum of a few elements of the source, at places and
with weights that are known when importing: one for "nearest", two for "linear", four for "cubic".

    y = take(x, places_0, axis) * weights_0 + take(x, places_1, axis) * weights_1 + ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.converters.joining import axis_of
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.broadcast import Add, Multiply
from minitvm.relay.ops.gather import Take

COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_crop_and_resize")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
F = np.float32


@dataclass(frozen=True, slots=True)
class Resampling:
    """How places and weights are found; all of it but `mode` has a default in ONNX."""

    mode: str
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False

    def taps(self, source: int, size: int, scale: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each tap, the places in an axis of `source` elements and the weights, `size` each."""
        if self.mode == "nearest":  # in float32, as other runtimes do: borders round alike
            at = self._places(source, size, F(scale), F)
            return [(np.clip(self._rounded(at), 0, source - 1).astype(np.int64), np.ones(size, F))]
        at = self._places(source, size, F(scale), np.float64)
        first = np.floor(at)
        part = at - first
        if self.mode == "linear":
            offsets, weights = range(2), [1 - part, part]
        else:
            offsets, weights = range(-1, 3), [self._cubic(np.abs(part - k)) for k in range(-1, 3)]
        places = [first.astype(np.int64) + offset for offset in offsets]
        if self.exclude_outside:
            weights = [np.where((p >= 0) & (p < source), w, 0) for p, w in zip(places, weights)]
            total = sum(weights)
            weights = [weight / total for weight in weights]
        return [(np.clip(p, 0, source - 1), w.astype(F)) for p, w in zip(places, weights)]

    def _places(self, source: int, size: int, factor: np.float32, dtype: Any) -> np.ndarray:
        index, scale, half = np.arange(size, dtype=dtype), dtype(factor), dtype(0.5)
        places: np.ndarray = (index + half) / scale - half
        match self.coordinates:
            case "asymmetric":
                places = index / scale
            case "align_corners":
                places = index * dtype(source - 1) / dtype(max(size - 1, 1))
            case "pytorch_half_pixel" if size == 1:
                places = index
            case "half_pixel_symmetric":
                places += dtype(source) / 2 * (1 - dtype(size) / (dtype(source) * scale))
        return places

    def _rounded(self, at: np.ndarray) -> np.ndarray:
        half = F(0.5)
        rounded: np.ndarray = np.ceil(at - half)
        match self.nearest:
            case "floor":
                rounded = np.floor(at)
            case "ceil":
                rounded = np.ceil(at)
            case "round_prefer_ceil":
                rounded = np.floor(at + half)
        return rounded

    def _cubic(self, distance: np.ndarray) -> np.ndarray:
        """The weight at a distance of up to 2, from R. Keys, "Cubic convolution interpolation"."""
        a, d = self.cubic, distance
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights: np.ndarray = np.where(d <= 1, near, far)
        return weights


def _resample(c: Conversion, how: Resampling, sizes: Sequence[int],
              scales: Sequence[float]) -> Atom:
    """The input with each axis resampled to its size."""
    result = c.input(0)
    if how.mode != "nearest" and not c.type(result).dtype.startswith("float"):
        raise Unsupported(f'mode "{how.mode}" on {c.type(result).dtype}', "cast it to float32")
    for axis, (source, size, scale) in enumerate(zip(c.shape(result), sizes, scales, strict=True)):
        if size < 0 or (size > 0 and source == 0):
            raise ModelError(f"{c.node}: axis {axis} of {source} can't be resized to {size}")
        taps = how.taps(source, size, scale)
        taps = [(places, weights) for places, weights in taps if weights.any()] or taps[:1]
        result = _along(c, result, axis, taps)
    return result


def _along(c: Conversion, x: Atom, axis: int,
           taps: list[tuple[np.ndarray, np.ndarray]]) -> Atom:
    total: Atom | None = None
    shape = [1] * c.type(x).rank
    for places, weights in taps:
        same = len(places) == c.shape(x)[axis] and (places == np.arange(len(places))).all()
        term = x if same else c.emit(Take(axis), x, c.make(places, "int64"))
        if (weights != 1).any():
            shape[axis] = len(weights)
            term = c.emit(Multiply(), term, c.make(weights.reshape(shape), c.type(x).dtype))
        total = term if total is None else c.emit(Add(), total, term)
    assert total is not None
    return total


# --- upsample -----------------------------------------------------------------------------------


def _by_scales(c: Conversion, scales: Sequence[float], how: Resampling) -> Atom:
    extents = c.shape(c.input(0))
    if len(scales) != len(extents) or not all(np.isfinite(s) and s > 0 for s in scales):
        raise ModelError(f"{c.node}: {len(extents)} positive scales are needed, not "
                         f"{tuple(scales)}")
    sizes = [int(np.floor(F(extent) * F(scale))) for extent, scale in zip(extents, scales)]
    return _resample(c, how, sizes, scales)


def _old_mode(c: Conversion) -> Resampling:
    """Before opset 11: places are rounded down, and not moved to the centres of pixels."""
    mode = c.text("mode", "nearest", ("nearest", "linear", "bilinear"))
    return Resampling(mode.removeprefix("bi"), "asymmetric", "floor")


@converter("Upsample", 7)
def upsample_by_attribute(c: Conversion) -> Atom:
    """Scales in an attribute."""
    scales = c.attribute("scales", None, (tuple,), "a list of numbers")
    if scales is None:
        raise ModelError(f"{c.node} lacks its attribute scales")
    return _by_scales(c, [float(scale) for scale in scales], _old_mode(c))


@converter("Upsample", 9)
@converter("Resize", 10)
def resize_by_scales(c: Conversion) -> Atom:
    """Scales in an input."""
    return _by_scales(c, [float(s) for s in c.constant(1, "the scales").reshape(-1)], _old_mode(c))


# --- resize -------------------------------------------------------------------------------------


@converter("Resize", 11)
def resize(c: Conversion) -> Atom:
    """Scales or sizes in inputs, for all axes or, from opset 18 on, for those named."""
    mode = c.text("mode", "nearest", ("nearest", "linear", "cubic"))
    how = Resampling(
        mode, c.text("coordinate_transformation_mode", "half_pixel", COORDINATES),
        c.text("nearest_mode", "round_prefer_floor", NEAREST), c.number("cubic_coeff_a", -0.75),
        c.flag("exclude_outside") and mode == "cubic")
    c.ignore("extrapolation_value")  # of tf_crop_and_resize
    if how.coordinates == "tf_crop_and_resize":
        raise Unsupported('coordinate_transformation_mode "tf_crop_and_resize"',
                          "use Slice and Resize")
    if c.flag("antialias"):
        raise Unsupported("the attribute antialias is 1", "export without antialiasing")
    extents = c.shape(c.input(0))
    axes = c.integers("axes")
    places = [axis_of(c, axis, len(extents))
              for axis in (range(len(extents)) if axes is None else axes)]
    policy = c.text("keep_aspect_ratio_policy", "stretch", POLICIES)
    sizes, scales = list(extents), [1.0] * len(extents)
    given = c.optional(2)
    if given is not None and c.type(given).elements() != 0:
        factors = [float(factor) for factor in c.constant(2, "the scales").reshape(-1)]
        _check_count(c, factors, places)
        for axis, factor in zip(places, factors):
            scales[axis] = factor
        return _by_scales(c, scales, how)
    wanted = c.constant_integers(3, "the sizes")
    _check_count(c, wanted, places)
    ratios = [size / max(extents[axis], 1) for axis, size in zip(places, wanted)]
    if policy != "stretch":  # one scale for all: the smallest, or the largest
        ratios = [(min if policy == "not_larger" else max)(ratios)] * len(places)
        wanted = tuple(int(np.floor(ratios[0] * extents[axis] + 0.5)) for axis in places)
    for axis, size, ratio in zip(places, wanted, ratios):
        sizes[axis], scales[axis] = size, ratio
    return _resample(c, how, sizes, scales)


def _check_count(c: Conversion, given: Sequence[float], axes: Sequence[int]) -> None:
    if len(given) != len(axes) or len(set(axes)) != len(axes):
        raise ModelError(f"{c.node} has {len(given)} scales or sizes for {len(axes)} axes")

