package calls

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// ParseFormat returns the format that Format.String names, such as "nvfp4+rht16".
func ParseFormat(name string) (mx.Format, error) {
	base, rest, _ := strings.Cut(name, "+")
	f, err := mx.ParseFormat(base)
	if err != nil || rest == "" {
		return f, err
	}
	for part := range strings.SplitSeq(rest, "+") {
		points, random := strings.CutPrefix(part, "rht")
		plain := false
		if !random {
			points, plain = strings.CutPrefix(part, "h")
		}
		switch {
		case part == "3/4":
			f.Shrink = true
		case random, plain:
			f.NoSigns = plain
			if f.Hadamard, err = strconv.Atoi(points); err != nil {
				return f, fmt.Errorf("format %q: %q is not a transform: give one such as rht16 or h16", name, part)
			}
		default:
			return f, fmt.Errorf("format %q: %q is unknown: use 3/4, rht16 or h16", name, part)
		}
	}
	return f, f.Validate()
}

// Quantize fills q with the codes and scales of x: [rows, cols] FP32 or BF16 with contiguous
// columns. mode is the name of a scale mode. seed and step name the random numbers of stochastic
// rounding.
func Quantize(q *Quantized, x *Array, mode string, stochastic bool, seed, step uint32, threads int32) error {
	m, err := mx.ParseScaleMode(mode)
	if err != nil {
		return err
	}
	return run(threads, elements(x), func(ex *tensor.Exec) error {
		t, err := q.tensor()
		if err != nil {
			return err
		}
		c := mx.Cast{Format: t.Format, Mode: m}
		if stochastic {
			c.Rounding = mx.Stochastic
		}
		c.Quantize(ex, t, x.matrix(), mx.Draws{Seed: seed, Step: step})
		return nil
	})
}

// Dequantize sets out, FP32 or BF16, to the values of q.
func Dequantize(out *Array, q *Quantized, threads int32) error {
	return run(threads, elements(out), func(ex *tensor.Exec) error {
		t, err := q.tensor()
		if err == nil {
			mx.Dequantize(ex, out.matrix(), t)
		}
		return err
	})
}

// Cast sets out to x, where either is FP8 without scales and the other FP32 or BF16. Numbers are
// rounded to the nearest, and large ones saturate.
func Cast(out, x *Array, threads int32) error {
	return run(threads, elements(out), func(ex *tensor.Exec) error {
		if x.DType.element() != nil {
			decode(ex, out.matrix(), x.matrix(), x.DType)
		} else {
			c := castArgs{out.matrix(), x.matrix(), out.DType.element()}
			tensor.Parallel(ex, c.to.Rows, castOps*c.to.Rows*c.to.Cols, c, encodeRows)
		}
		return nil
	})
}

// castOps is the cost of one element, in operations of a matrix product.
const castOps = 64

// castArgs holds the arguments of encodeRows and decodeRows.
type castArgs struct {
	to, from tensor.Matrix
	element  *format.Element
}

func encodeRows(ex *tensor.Exec, c castArgs, lo, hi int) {
	row := ex.New(tensor.FP32, 1, c.from.Cols)
	if ex.Dry() {
		return
	}
	for r := lo; r < hi; r++ {
		tensor.Convert(nil, row.Mat(), c.from.RowSlice(r, r+1))
		codes := rowOf[uint8](c.to, r)
		if !slices.ContainsFunc(row.F32(), func(v float32) bool { return v != v }) {
			c.element.EncodeScaled(codes, row.F32(), 1)
			continue
		}
		for i, v := range row.F32() {
			codes[i] = c.element.Encode(v)
		}
	}
}

// decode sets to to the values of codes without scales.
func decode(ex *tensor.Exec, to, codes tensor.Matrix, d DType) {
	tensor.Parallel(ex, codes.Rows, castOps*codes.Rows*codes.Cols, castArgs{to, codes, d.element()}, decodeRows)
}

// decodeRows decodes rows. BF16 holds all values of 8-bit elements.
func decodeRows(ex *tensor.Exec, c castArgs, lo, hi int) {
	values := c.element.Values()
	var narrow [256]uint16
	for i, v := range values {
		narrow[i] = uint16(math.Float32bits(v) >> 16)
	}
	for r := lo; r < hi; r++ {
		codes := rowOf[uint8](c.from, r)
		if c.to.DType() == tensor.BF16 {
			to := rowOf[uint16](c.to, r)
			for i, code := range codes {
				to[i] = narrow[code]
			}
			continue
		}
		to := rowOf[float32](c.to, r)
		for i, code := range codes {
			to[i] = values[code]
		}
	}
}
