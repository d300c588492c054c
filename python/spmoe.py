"""Low-precision formats and products, with the bits of torchao, Transformer Engine and GPUs, on a CPU.

    q = spmoe.quantize(x, "mxfp8")                      # codes, scales = q
    y = spmoe.matmul(x, w.T, sum="h100")                # as cuBLAS on an H100 adds
    y, dx, dw = spmoe.linear(x, w, dy, "nvfp4")         # the three products of a recipe

Arrays are NumPy arrays or PyTorch tensors on the CPU. BF16 is uint16 in NumPy, or bfloat16 of ml_dtypes
or torch. The last dimension is contiguous, or the one before it (a transpose); the other strides and
the alignment may be anything but negative. Inputs are not copied, except that FP16 is widened.
Results are NumPy arrays, or the arrays given as out.

Mistakes raise TypeError (types) or ValueError (everything else). MemoryError says that results or
scratch memory would not fit. Calls release the GIL and use all processors, or threads=N; results
have the same bits for any number. A process that was forked after the import cannot call the
library: RuntimeError. docs/python.md is the guide.
"""

import ctypes
import json
import operator
import os
import warnings

import numpy as np

__all__ = ["Quantized", "addmm", "available", "bfloat16", "check", "dequantize", "float32", "fp8", "grouped_mm",
           "info", "linear", "linear_backward", "matmul", "quantize", "schedule"]

_ABI = 3  # of package calls
_FP32, _BF16, _FP16, _E4M3, _E5M2 = range(5)
_TYPES = {"float32": (_FP32, 4), "bfloat16": (_BF16, 2), "uint16": (_BF16, 2), "float16": (_FP16, 2),
          "float8_e4m3fn": (_E4M3, 1), "float8_e5m2": (_E5M2, 1)}
_NUMPY = {np.dtype(name): name for name in ("float32", "uint16", "float16", "uint8", "int32", "int64")}
_FP8 = {"float8_e4m3fn": _E4M3, "float8_e5m2": _E5M2}
_NAMES = {"mxfp8": "e4m3", "mxfp8-e5m2": "e5m2", "mxfp6-e2m3": "e2m3", "mxfp6-e3m2": "e3m2", "mxint8": "int8", "fp8-block": "fp8-1x128"}
_COPY = "copy it first (numpy.ascontiguousarray)"
_CHECKED = 64 << 20  # results below this size are allocated without a look at the free memory


class _Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("groups", ctypes.c_int64), ("rows", ctypes.c_int64), ("cols", ctypes.c_int64),
                ("stride", ctypes.c_int64), ("dtype", ctypes.c_int32), ("transposed", ctypes.c_int32)]


class _Quantized(ctypes.Structure):
    _fields_ = [("codes", ctypes.c_void_p), ("scales", ctypes.c_void_p), ("amax", ctypes.c_void_p), ("ends", ctypes.c_void_p),
                ("rows", ctypes.c_int64), ("cols", ctypes.c_int64), ("groups", ctypes.c_int64),
                ("along_cols", ctypes.c_int32), ("transposed", ctypes.c_int32), ("format", ctypes.c_char * 64)]


def _load():
    path = os.environ.get("SPMOE_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libspmoe.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} does not exist: build it in a clone of spmoe, with Go and a C compiler:\n"
                          "    go build -buildmode=c-shared -o python/libspmoe.so ./python")
    lib = ctypes.CDLL(path)
    p, i32, i64, u32, s = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_char_p
    for name, arguments in {
        "about": [p], "layout": [p, p], "quantize": [p, p, s, i32, u32, u32, i32], "dequantize": [p, p, i32], "cast": [p, p, i32],
        "matmul": [p, p, p, p, s, i32, i32, i32], "matmul_quantized": [p, p, p, p, i64, s, i32],
        "linear": [p] * 7 + [s, s, u32, u32, i32], "schedule": [s, i64, i64, i64, p], "check": [s, p],
    }.items():
        function = getattr(lib, "spmoe_" + name)
        function.argtypes, function.restype = arguments, p
    lib.spmoe_free.argtypes, lib.spmoe_free.restype = [p], None
    lib.spmoe_available.argtypes, lib.spmoe_available.restype = [], i64
    return lib


def _call(name, *arguments):
    """Calls a function of the library and raises its error."""
    _own_process()
    message = getattr(_library, "spmoe_" + name)(*arguments)
    if message:
        text = _taken(message)
        if text.startswith("MemoryError: "):
            raise MemoryError(text[len("MemoryError: "):])
        raise ValueError(text)


def _own_process():
    if os.getpid() != _process:
        raise RuntimeError(f"process {os.getpid()} was forked from {_process}, which had imported spmoe, and has none of its threads: "
                           'import spmoe after the fork, or start processes with multiprocessing.get_context("spawn")')


def _taken(pointer):
    """Returns a string of the library and frees it."""
    text = ctypes.string_at(pointer).decode()
    _library.spmoe_free(pointer)
    return text


def _document(name, *arguments):
    """Calls a function whose result is JSON."""
    result = ctypes.c_void_p()
    _call(name, *arguments, ctypes.byref(result))
    return json.loads(_taken(result.value))


# Arrays of the caller.

class _View:
    """An array of NumPy or torch: where it is, and how its elements lie there, in bytes."""

    def __init__(self, x, name):
        self.name, self.owner = name, x
        if type(x) is np.ndarray or isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray):
            self.dtype = _NUMPY.get(x.dtype) or str(x.dtype)
            self.shape, self.item, self.strides = x.shape, x.itemsize, x.strides
            self.address, read_only = x.__array_interface__["data"]
            self.writable = not read_only
        elif hasattr(x, "data_ptr") and hasattr(x, "stride"):
            if str(getattr(x, "device", "cpu")) != "cpu" or str(getattr(x, "layout", "torch.strided")) != "torch.strided" or x.is_neg():
                raise TypeError(f"{name} is a {x.layout} tensor on {x.device}: give a dense tensor on the CPU")
            self.dtype, self.item = str(x.dtype).removeprefix("torch."), x.element_size()
            self.shape, self.strides = tuple(x.shape), tuple(self.item * s for s in x.stride())
            self.address, self.writable = x.data_ptr(), True
        else:
            raise TypeError(f"{name} is a {type(x).__name__}: give a NumPy array or a torch tensor")
        if self.dtype not in _TYPES and self.dtype not in ("uint8", "int32", "int64"):
            raise self.wrong_type()
        if 0 in self.shape:
            raise ValueError(f"{name} has the shape {self.shape}: it is empty")
        if self.strides and min(self.strides) < 0:
            raise ValueError(f"{name} has the strides {self.strides}: negative ones are not supported, copy it first")

    def wrong_type(self):
        want = "float32, bfloat16 (uint16 in NumPy), float16 or FP8 (see spmoe.fp8)"
        return TypeError(f"{self.name} has the type {self.dtype}: give {want}")

    def span(self):
        """Returns the range of its bytes."""
        end = self.address + self.item
        for stride, extent in zip(self.strides, self.shape):
            end += stride * (extent - 1)
        return self.address, end

    def place(self):
        """Returns what must not change between a check and the use."""
        return self.address, self.shape, self.strides, self.dtype

    def numpy(self):
        """Returns a NumPy array of the same memory."""
        memory = (ctypes.c_char * (self.span()[1] - self.address)).from_address(self.address)
        return np.ndarray(self.shape, self.dtype, memory, 0, self.strides)

    def typed(self, *dtypes):
        if self.dtype not in dtypes:
            raise TypeError(f"{self.name} has the type {self.dtype}: give {' or '.join(dtypes)}")
        return self

    def of(self, *shape):
        """Raises unless the array has this shape. None stands for any extent."""
        if self.shape != shape and (len(shape) != len(self.shape) or any(w not in (None, d) for w, d in zip(shape, self.shape))):
            want = ", ".join("any" if w is None else str(w) for w in shape)
            raise ValueError(f"{self.name} has the shape {self.shape}: [{want}] is expected")
        return self

    def array(self, transpose=True):
        """Describes a matrix, or matrices without gaps, to the library."""
        if len(self.shape) not in (2, 3):
            raise ValueError(f"{self.name} has the shape {self.shape}: 2 dimensions are expected, or 3 for groups")
        if self.dtype not in _TYPES:
            raise self.wrong_type()
        rows, cols = self.shape[-2:]
        across, along = self.strides[-2:]
        if rows == 1:
            across = cols * self.item
        if along == self.item or cols == 1 and across != self.item:
            a = _Array(self.address, 0, rows, cols, across // self.item, _TYPES[self.dtype][0], 0)
        elif transpose and (across == self.item or rows == 1):
            rows, cols, across = cols, rows, along
            a = _Array(self.address, 0, rows, cols, across // self.item, _TYPES[self.dtype][0], 1)
        elif cols == 1:
            a = _Array(self.address, 0, rows, cols, 1, _TYPES[self.dtype][0], 0)
        else:
            which = "one of the last two dimensions" if transpose else "the last dimension"
            raise ValueError(f"{self.name} has the strides {self.strides}: {which} must be contiguous, {_COPY}")
        if across % self.item:
            raise ValueError(f"{self.name} has the strides {self.strides}: give multiples of its {self.item} bytes per element")
        if len(self.shape) == 3:
            a.groups = self.shape[0]
            a.stride = cols
            if self.strides[0] != rows * cols * self.item and self.shape[0] > 1 or across != a.stride * self.item:
                raise ValueError(f"{self.name} has the strides {self.strides}: groups must follow each other without gaps, copy it first")
        return a

    def operand(self):
        """Describes an input. FP16 is widened."""
        if self.dtype != "float16":
            return self.array()
        self.wide = np.ascontiguousarray(self.numpy().astype(np.float32))
        a = _View(self.wide, self.name).array()
        a.dtype = _FP16
        return a


def _index(value, name, least, most):
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: give a whole number") from None
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}: give {least} to {most}")
    return value


def _draws(seed, step):
    return _index(seed, "seed", 0, 2**32 - 1), _index(step, "step", 0, 2**32 - 1)


def _threads(threads):
    return 0 if threads is None else _index(threads, "threads", 1, 1024)


def _text(value, name):
    if not isinstance(value, str) or "\0" in value:
        raise TypeError(f"{name} is {value!r}: give a string")
    return value.encode()


def _ends(offs, rows):
    """Returns the ends of groups as int32."""
    if offs is None:
        return None
    ends = _View(offs, "offs").typed("int32", "int64").numpy() if hasattr(offs, "shape") else np.asarray(offs)
    if ends.ndim != 1 or ends.dtype.kind != "i" or not len(ends) or ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != rows:
        raise ValueError(f"offs is {ends}: give the end of each group of rows, ascending, the last one {rows}")
    return np.ascontiguousarray(ends, np.int32)


def _same_ends(a, b):
    return a is b or a is not None and b is not None and np.array_equal(a, b)


def _pointer(x):
    return None if x is None else x.ctypes.data


def _new(shape, dtype):
    """Allocates a result that begins with a cache line. On AMX, a product of operands that do not takes up to 1.7 times as long."""
    size = np.dtype(dtype).itemsize
    for d in shape:
        size *= d
    if size > _CHECKED:
        free = available()
        if size > free:
            raise MemoryError(f"a result of the shape {tuple(shape)} needs {size} bytes, {free} are available")
    memory = np.empty(size + 63, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % 64)


def _result(out, shape, dtype, inputs, name="out"):
    """Returns the array for a result, and its description. inputs are those that it must not overlap."""
    if out is None:
        if dtype not in ("float32", "bfloat16", "uint16"):
            raise TypeError(f"{name} would have the type {dtype!r}: give float32 or bfloat16")
        out = _new(shape, np.float32 if dtype == "float32" else np.uint16)
    view = _View(out, name).typed("float32", "bfloat16", "uint16").of(*shape)
    a = view.array(transpose=False)
    if not view.writable or a.stride < a.cols and a.rows > 1:
        raise ValueError(f"{name} is read-only or its rows overlap: give memory of its own")
    lo, hi = view.span()
    for other in inputs:
        first, last = other.span()
        if first < hi and lo < last:
            raise ValueError(f"{name} overlaps {other.name}: give memory of its own")
    return out, a


# Formats.

class Quantized:
    """A quantized matrix [rows, K], or groups of them [G, rows, K]. codes, scales = q unpacks it.

    format: its name, such as "e4m3" (MXFP8) or "nvfp4+rht16"; "float8_e4m3fn" has no scales.
    codes: uint8 of the matrix's shape; half the columns for 4-bit formats, the even one in the low bits.
    scales: uint8 (E8M0, E4M3) or float32, [rows, blocks], or [blocks, K] for dim=-2. Groups follow each other. None for "fp8-tensor".
    amax: float32, the largest magnitude of each group, for NVFP4 and "fp8-tensor"; else None.
    dim: -1 if blocks run along the last dimension, -2 if along the one before.
    offs: the ends of groups of rows, each of which begins a block; None: there is one group.

    T (or mT) is the transposed operand of a product, without a copy. A matrix from elsewhere is
    Quantized(format, codes, scales); codes and scales must be contiguous. Attributes cannot be set, and
    offs cannot be written to. Elements of the other arrays can change, their memory and shape cannot.
    """

    __slots__ = ("format", "codes", "scales", "amax", "dim", "offs", "transposed", "_memory", "_made")

    def __init__(self, format, codes, scales=None, amax=None, dim=-1, offs=None):
        format = _resolved(format)["format"]
        if dim not in (-1, -2):
            raise ValueError(f"dim is {dim!r}: give -1 or -2, the dimension along which blocks run")
        view = _View(codes, "codes").typed("uint8", "float8_e4m3fn", "float8_e5m2")
        if len(view.shape) not in (2, 3):
            raise ValueError(f"codes has the shape {view.shape}: 2 dimensions are expected, or 3 for groups")
        if format in _FP8:
            self._set(format, codes, None, None, dim, None, view.shape)
            return
        memory = view.shape
        if format.split("+")[0] in ("mxfp4", "nvfp4", "nvfp4-16x16"):
            memory = (*view.shape[:-1], 2 * view.shape[-1])
        *groups, rows, _ = memory
        if groups and offs is not None:
            raise ValueError("offs is given for groups of equal size: their ends are known")
        offs = np.arange(1, groups[0] + 1, dtype=np.int32) * np.int32(rows) if groups else _ends(offs, rows)
        shapes = _layout(format, memory, dim, offs)
        for name, part, shape, dtypes in (("codes", codes, shapes[0], ("uint8", view.dtype)), ("scales", scales, shapes[1], (shapes[2],)),
                                          ("amax", amax, shapes[3], ("float32",))):
            if 0 in shape:
                continue
            part = _View(part, name).typed(*dtypes)
            size = part.item
            for d, stride in zip(reversed(part.shape), reversed(part.strides)):
                if d > 1 and stride != size:
                    raise ValueError(f"{name} has the strides {part.strides}: it must be contiguous, {_COPY}")
                size *= d
            part.of(*(part.shape if name == "codes" else shape))
        self._set(format, codes, scales, amax, dim, offs, memory)

    def _set(self, format, codes, scales, amax, dim, offs, memory, transposed=False):
        if offs is not None:
            offs = np.frombuffer(offs.tobytes(), np.int32)  # a copy that cannot be made writable
        parts = (("codes", codes), ("scales", scales), ("amax", amax))
        made = {name: _View(part, name).place() for name, part in parts if part is not None}
        for name, value in zip(self.__slots__, (format, codes, scales, amax, dim, offs, transposed, memory, made)):
            object.__setattr__(self, name, value)
        return self

    def __setattr__(self, name, value=None):
        raise AttributeError(f"{name} of a Quantized cannot change: make another one")

    __delattr__ = __setattr__

    def __reduce__(self):
        if self.transposed:
            return operator.attrgetter("T"), (self.T,)
        return Quantized, (self.format, self.codes, self.scales, self.amax, self.dim, None if len(self._memory) == 3 else self.offs)

    def __iter__(self):
        return iter((self.codes, self.scales))

    def __repr__(self):
        return f"Quantized({self.format!r}, shape={self.shape}, dim={self.dim}{', transposed' if self.transposed else ''})"

    @property
    def shape(self):
        *groups, rows, cols = self._memory
        return (*groups, cols, rows) if self.transposed else (*groups, rows, cols)

    @property
    def mT(self):
        return object.__new__(Quantized)._set(self.format, self.codes, self.scales, self.amax, self.dim, self.offs, self._memory, not self.transposed)

    T = mT

    def _struct(self):
        *groups, rows, cols = self._memory
        for d in groups:
            rows *= d
        codes, scales, amax = (self._view(name).address if name in self._made else None for name in ("codes", "scales", "amax"))
        return _Quantized(codes, scales, amax, _pointer(self.offs), rows, cols,
                          0 if self.offs is None else len(self.offs), self.dim == -2, self.transposed, self.format.encode())

    def _view(self, name):
        """Returns the view of a part, whose memory and shape must be those that were checked."""
        view = _View(getattr(self, name), "the " + name)
        if view.place() != self._made[name]:
            raise ValueError(f"{name} of a Quantized has another memory or shape than when it was made: make another one")
        return view

    def _views(self):
        return [self._view(name) for name in ("codes", "scales") if name in self._made]


def _layout(format, memory, dim, offs):
    """Returns the shapes of codes and scales, the type of scales, and the shape of amax."""
    *groups, rows, cols = memory
    for d in groups:
        rows *= d
    sizes = (ctypes.c_int64 * 6)()
    q = _Quantized(None, None, None, _pointer(offs), rows, cols, 0 if offs is None else len(offs), dim == -2, 0, format.encode())
    _call("layout", ctypes.byref(q), sizes)
    return (sizes[0], sizes[1]), (sizes[2], sizes[3]), "uint8" if sizes[4] == 1 else "float32", (sizes[5],)


def _resolved(format):
    """Returns the cast that a name stands for: a format, or an operand of a recipe."""
    _text(format, "format")
    if format in _NAMES or len(format) > 60:
        return {"format": _NAMES.get(format, "")}
    recipe, _, operand = format.partition(".")
    casts = _info["recipes"].get(recipe, {})
    if not operand:
        return {"format": format}
    if operand not in casts:
        raise ValueError(f"format is {format!r}: {recipe} has {', '.join(sorted(casts)) or 'no quantized operands'}")
    return casts[operand]


def quantize(x, format="mxfp8", dim=-1, *, scaling_mode=None, offs=None, seed=0, step=0, out=None, threads=None):
    """Quantizes x: [rows, K], or [G, rows, K] for groups of equal size. Returns a Quantized.

    x: float32, bfloat16 or float16, its last dimension contiguous.
    format: "mxfp8", "mxfp8-e5m2", "mxfp4", "mxfp6-e2m3", "mxfp6-e3m2", "mxint8", "nvfp4", "nvfp4-16x16", "fp8-1x128",
        "fp8-128x128" (with "-pow2": scales that are powers of two), "fp8-tensor"; an operand of a recipe as RECIPE.PRODUCT.OPERAND,
        such as "nvfp4.wgrad.dy"; "float8_e4m3fn" or "float8_e5m2": elements without scales. A suffix adds "+rht16" (random
        Hadamard transform) or "+h16" (without random signs).
    dim: -1: blocks along the last dimension; -2: along the one before, for a product that sums over it.
    scaling_mode: "rceil", "floor", "ceil" or "even" for E8M0 scales, as in torchao; None: rceil, or that of the recipe.
    offs: int32, the ends of groups of rows, as in torch's grouped_mm.
    seed, step: name the random numbers of stochastic rounding, which some recipes' operands have.
    out: a Quantized with scales, of the same shape, format, dim and offs, to fill and return.

    A block with a NaN or an infinity becomes NaN. The bits are those of torchao (MX), Transformer Engine (NVFP4)
    and DeepSeek's TileKernels (FP8 in blocks of 128), with ties to even. Source: OCP MX v1.0, section 6.3.
    """
    cast, view = _resolved(format), _View(x, "x").typed("float32", "bfloat16", "uint16", "float16")
    name, threads = cast["format"], _threads(threads)
    mode, seed, step = _text(scaling_mode or cast.get("scale", "rceil"), "scaling_mode"), *_draws(seed, step)
    a = view.operand()
    if a.transposed:
        raise ValueError(f"x has the strides {view.strides}: its last dimension must be contiguous; dim=-2 quantizes along the other one")
    if name in _FP8:
        if out is not None:
            raise ValueError(f"out is given for {name}, which has no scales")
        codes = _new(view.shape, np.uint8)
        to = _View(codes, "codes")
        to.dtype = name
        target = to.array()
        for each in (a, target):
            each.rows, each.groups = each.rows * max(each.groups, 1), 0
        _call("cast", ctypes.byref(target), ctypes.byref(a), threads)
        return Quantized(name, codes)
    *groups, rows, _ = view.shape
    if groups:
        if offs is not None:
            raise ValueError("offs is given for groups of equal size: their ends are known")
        ends = np.arange(1, groups[0] + 1, dtype=np.int32) * np.int32(rows)
    else:
        ends = _ends(offs, rows)
    if dim not in (-1, -2):
        raise ValueError(f"dim is {dim!r}: give -1 or -2, the dimension along which blocks run")
    if out is not None:
        q = _filled(out, (name, view.shape, dim), ends, view)
    else:
        codes, scales, scale, amax = _layout(name, view.shape, dim, ends)
        codes = _new((*view.shape[:-1], codes[1]), np.uint8)
        q = object.__new__(Quantized)._set(name, codes, None if 0 in scales else _new(scales, scale), None if 0 in amax else _new(amax, np.float32),
                                           dim, ends, view.shape)
    a.rows, a.groups = a.rows * max(a.groups, 1), 0
    _call("quantize", ctypes.byref(q._struct()), ctypes.byref(a), mode, cast.get("rounding") == "stochastic", seed, step, threads)
    return q


def _filled(out, kind, ends, x):
    """Returns out, which quantize fills, if it is of a kind and has memory of its own."""
    if not isinstance(out, Quantized) or out.transposed or (out.format, out._memory, out.dim) != kind or not _same_ends(out.offs, ends):
        raise ValueError(f"out is {out!r}: give a Quantized of {kind[0]}, shape {kind[1]}, dim {kind[2]} and the same offs")
    for part in [out._view(name) for name in out._made]:
        if not part.writable or part.span()[0] < x.span()[1] and x.span()[0] < part.span()[1]:
            raise ValueError("out is read-only or overlaps x: give memory of its own")
    return out


def fp8(codes, dtype="float8_e4m3fn"):
    """Returns FP8 elements without scales as an operand. codes: uint8, [rows, cols] or [G, rows, cols]; no copy."""
    if dtype not in _FP8:
        raise ValueError(f"dtype is {dtype!r}: give float8_e4m3fn or float8_e5m2")
    return Quantized(dtype, codes)


def dequantize(q, *, out=None, out_dtype="float32", threads=None):
    """Returns the values of a Quantized: float32 (exact unless they exceed its range) or bfloat16, of q's shape in memory."""
    if not isinstance(q, Quantized):
        raise TypeError(f"q is a {type(q).__name__}: give what quantize returns")
    out, a = _result(out, q._memory, out_dtype, q._views())
    a.rows, a.groups = a.rows * max(a.groups, 1), 0
    if q.format in _FP8:
        b = _plain(q, "q")[1]
        b.rows, b.groups, b.transposed = a.rows, 0, 0
        b.cols = a.cols
        _call("cast", ctypes.byref(a), ctypes.byref(b), _threads(threads))
    else:
        _call("dequantize", ctypes.byref(a), ctypes.byref(q._struct()), _threads(threads))
    return out.swapaxes(-1, -2) if q.transposed else out


# Products.

def _plain(x, name):
    """Returns the view and the description of an operand without scales."""
    if not isinstance(x, Quantized):
        view = _View(x, name)
        return view, view.operand()
    view = x._view("codes")
    view.name, view.dtype = name, x.format
    if x.transposed:
        view.shape, view.strides = (*view.shape[:-2], *view.shape[:-3:-1]), (*view.strides[:-2], *view.strides[:-3:-1])
    return view, view.array()


def _scaled(x):
    return isinstance(x, Quantized) and x.format not in _FP8


def _multiply(a, b, offs, sum, out, out_dtype, threads, initial=None, parts=None):
    sum, threads = _text(sum, "sum"), _threads(threads)
    if _scaled(a) != _scaled(b):
        raise TypeError("one operand has scales and the other has none: quantize both or neither")
    parts = 0 if parts is None else _index(parts, "parts", 1, 1 << 16)
    if parts and _scaled(a):
        raise TypeError("operands with scales have no parts of K")
    if _scaled(a):
        views, left, right, shapes = a._views() + b._views(), a._struct(), b._struct(), (a.shape, b.shape)
    else:
        (va, left), (vb, right) = _plain(a, "a"), _plain(b, "b")
        views, shapes = [va, vb], (va.shape, vb.shape)
    (*ga, m, k), (*gb, kb, n) = shapes
    if ga or k != kb or gb and offs is None:
        raise ValueError(f"a has the shape {shapes[0]} and b {shapes[1]}: [M, K] and [K, N] are expected, or [G, K, N] with offs")
    shape, ends = (m, n), None
    if offs is not None:
        ends = _ends(offs, m if gb else k)
        if gb and gb[0] != len(ends):
            raise ValueError(f"b has {gb[0]} groups and offs {len(ends)}: both must have the same number")
        shape = (m, n) if gb else (len(ends), m, n)
    if _scaled(a) and offs is not None and (a.transposed if gb else not a.transposed or b.transposed):
        raise ValueError("a or b is transposed, and its groups are not its rows: see grouped_mm for the operands that it takes")
    out, c = _result(out, shape, out_dtype, views)
    if c.dtype != _FP32 and (c.groups or _scaled(a) and a.transposed):
        raise TypeError("a product that sums over rows (a gradient of weights) is float32")
    if initial is not None:
        _View(initial, "input").typed("float32").of(m, n)
        if str(getattr(out, "dtype", "")).removeprefix("torch.") != "float32":
            raise TypeError("out must be float32, the type of input")
        target = _View(out, "out").numpy()
        np.copyto(target, _View(initial, "input").numpy())
    if _scaled(a):
        if not gb and ends is not None and not (_same_ends(a.offs, ends) and _same_ends(b.offs, ends)):
            raise ValueError("the groups of a and b are not those of offs: quantize both with offs")
        groups = 0 if ends is None else len(ends)
        _call("matmul_quantized", ctypes.byref(c), ctypes.byref(left), ctypes.byref(right), _pointer(ends), groups, sum, threads)
    else:
        _call("matmul", ctypes.byref(c), ctypes.byref(left), ctypes.byref(right), _pointer(ends), sum, parts, initial is not None, threads)
    return out


def matmul(a, b, *, sum="fp32", parts=None, out=None, out_dtype="float32", threads=None):
    """Returns a·b as torch.matmul does: a [M, K], b [K, N].

    a, b: both bfloat16, float16, FP8 (torch, ml_dtypes or spmoe.fp8) or Quantized; float32 with sum="fp32". Either may be a
        transpose, such as w.T. A Quantized a has blocks along its last dimension and b along its first:
        matmul(quantize(x), quantize(w).T) for y = x·wᵀ, matmul(quantize(dy), quantize(w, dim=-2)) for dx = dy·w, and
        matmul(quantize(dy, dim=-2).T, quantize(x, dim=-2)) for dw = dyᵀ·x.
    sum: how products add. "fp32": fast, the order depends on shape and CPU. "exact": in FP64, rounded once; without any rounding
        before for NVFP4. "h100", "h100-nopromotion" (FP8 in one chain, use_fast_accum=True), "b200": bit by bit as cuBLAS on
        that GPU, for the formats that it multiplies. docs/gpu-sums.md says what was compared with a chip.
    parts: how many parts of K an H100 adds one after another (split-K). The number is cuBLAS's choice. With parts, also 1, bfloat16
        rows of an odd number of elements are added as PyTorch's kernel for them does.
    out, out_dtype: float32, or bfloat16 rounded once from it.
    """
    return _multiply(a, b, None, sum, out, out_dtype, threads, parts=parts)


def addmm(input, a, b, *, sum="fp32", out=None, threads=None):
    """Returns input + a·b as torch.addmm does, in float32. input: float32 [M, N]; a, b: not Quantized, except FP8.

    With the sum of a GPU, input is the first value of the accumulator. With "exact", the rounded product is added to it.
    """
    if _scaled(a) or _scaled(b):
        raise TypeError("addmm has no operands with scales: add the result of matmul")
    return _multiply(a, b, None, sum, out, "float32", threads, initial=input)


def grouped_mm(a, b, offs, *, sum="fp32", out=None, out_dtype="float32", threads=None):
    """Returns the products of groups as torch's grouped_mm does. offs: int32 [G], the end of each group; groups may be empty.

    a [M, K], b [G, K, N]: rows of group g times b[g], [M, N]. b is w.swapaxes(1, 2) for w [G, N, K], quantize(w).mT or quantize(w, dim=-2).
    a [M, T], b [T, N]: columns of group g of a times rows of group g of b, [G, M, N] float32. Quantized ones are
        quantize(dy, dim=-2, offs=offs).T and quantize(x, dim=-2, offs=offs).
    Everything else is as in matmul.
    """
    if offs is None:
        raise TypeError("offs is None: give the end of each group")
    return _multiply(a, b, offs, sum, out, out_dtype, threads)


def _layer(x, w, dy, recipe, sum, offs, outs, wanted, seed, step, threads):
    recipe, sum, seed, step = _text(recipe, "recipe"), _text(sum, "sum"), *_draws(seed, step)
    x, w, dy = _View(x, "x").of(None, None), _View(w, "w"), None if dy is None else _View(dy, "dy")
    rows, k = x.shape
    *groups, n, _ = w.of(*([None] * (2 if offs is None else 3))).shape
    w.of(*groups, n, k)
    ends = _ends(offs, rows)
    if groups and groups[0] != len(ends):
        raise ValueError(f"w has {groups[0]} groups and offs {len(ends)}: both must have the same number")
    inputs = [v for v in (x, w, dy) if v is not None]
    for v in inputs:
        v.typed("float32") if x.dtype == "float32" else v.typed("bfloat16", "uint16")
    if dy is not None:
        dy.of(rows, n)
    arrays = []
    for v in inputs:
        a = v.array()
        if a.transposed or v is w and not a.groups and a.stride != k:
            which = "it" if v is w else "its last dimension"
            raise ValueError(f"{v.name} has the strides {v.strides}: {which} must be contiguous, {_COPY}")
        arrays.append(a)
    shapes = {"y": ((rows, n), x.dtype), "dx": ((rows, k), x.dtype), "dw": (w.shape, "float32")}
    results, described = [], []
    for name, (shape, dtype) in shapes.items():
        if name not in wanted:
            described.append(None)
            continue
        out = None if outs is None else outs[len(results)]
        out, a = _result(out, shape, dtype, inputs + [_View(r, "another result") for r in results], name)
        if a.dtype != _TYPES[dtype][0] or name == "dw" and a.stride != k:
            raise TypeError(f"{name} must be {dtype}{' and contiguous' if name == 'dw' else ''}")
        results.append(out)
        described.append(ctypes.byref(a))
    arguments = [ctypes.byref(a) for a in arrays] + [None] * (3 - len(arrays))
    _call("linear", *described, *arguments, _pointer(ends), recipe, sum, seed, step, _threads(threads))
    return tuple(results)


def linear(x, w, dy=None, recipe="bf16", *, sum="fp32", offs=None, out=None, seed=0, step=0, threads=None):
    """Returns y = x·wᵀ or, with dy, (y, dx, dw) of a linear layer in a recipe, as spmoe's models compute them.

    x: [rows, K]; w: [N, K]; dy: [rows, N]; all bfloat16, or all float32. dx = dy·w; dw = dyᵀ·x is float32.
    With offs (ends of groups of rows) w is [G, N, K], and the recipe is that of experts.
    recipe: a name of info()["recipes"], such as "bf16", "mxfp8", "nvfp4", "fp8-block" or "mxfp4". docs/precision.md has the sources.
    sum: as in matmul, for all products of the layer; a GPU's needs a recipe that it multiplies.
    out: arrays for the results, in their order, as a tuple; without dy, one array.
    """
    if dy is None:
        return _layer(x, w, None, recipe, sum, offs, None if out is None else (out,), ("y",), seed, step, threads)[0]
    return _layer(x, w, dy, recipe, sum, offs, _three(out, 3), ("y", "dx", "dw"), seed, step, threads)


def linear_backward(x, w, dy, recipe="bf16", *, sum="fp32", offs=None, out=None, seed=0, step=0, threads=None):
    """Returns (dx, dw) only. See linear."""
    return _layer(x, w, dy, recipe, sum, offs, _three(out, 2), ("dx", "dw"), seed, step, threads)


def _three(out, n):
    if out is not None and (not isinstance(out, (tuple, list)) or len(out) != n):
        raise TypeError(f"out is {type(out).__name__}: give a tuple of {n} arrays")
    return out


# Other functions.

def schedule(name, pp, microbatches, stages_per_rank=0):
    """Returns the actions of each rank of a pipeline schedule in torch.distributed.pipelining's notation, such as "0F0"; "" is idle.

    name: of info()["schedules"]; pp: ranks; stages_per_rank: 0 is the least of the schedule, 1 or 2.
    """
    sizes = [_index(v, n, 0, 1 << 30) for v, n in ((pp, "pp"), (stages_per_rank, "stages_per_rank"), (microbatches, "microbatches"))]
    return _document("schedule", _text(name, "name"), *sizes)


def check(path):
    """Judges the training step of another program in a folder, as `launcher check FOLDER` does. Returns the report of --json as a dict.

    Its "verdict" is "right", "wrong" or "cannot tell".
    """
    return _document("check", _text(os.fspath(path), "path"))


def bfloat16(x):
    """Returns float32 numbers as BF16 (uint16), rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7fff) + (bits >> 16 & 1)) >> 16
    out = _new(np.shape(x), np.uint16)
    out[...] = np.where(bits & 0x7fffffff > 0x7f800000, bits >> 16 | 0x40, rounded).reshape(np.shape(x))
    return out


def float32(x):
    """Returns BF16 (uint16) as float32."""
    return (_View(x, "x").typed("uint16").numpy().astype(np.uint32) << 16).view(np.float32)


def available():
    """Returns the memory in bytes that this process may still use, after limits of containers."""
    _own_process()
    return _library.spmoe_available()


def info():
    """Returns what this build offers: tier (the instructions in use), note, threads, formats, sums, scales, recipes, schedules."""
    return json.loads(json.dumps(_info))


_process = os.getpid()
_library = _load()
_info = _document("about")
if _info["abi"] != _ABI:
    raise ImportError(f"the library has version {_info['abi']} of the interface and spmoe.py {_ABI}: build the library again")
if _info["note"]:
    warnings.warn(_info["note"], RuntimeWarning, stacklevel=2)
