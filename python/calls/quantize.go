package calls

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// parseFormat returns the format that Format.String names, such as "nvfp4+rht16".
func parseFormat(name string) (mx.Format, error) {
	base, rest, more := strings.Cut(name, "+")
	f, err := mx.ParseFormat(base)
	for more && err == nil {
		var part string
		part, rest, more = strings.Cut(rest, "+")
		if part == "3/4" {
			f.Shrink = true
		} else if _, random := fmt.Sscanf(part, "rht%d", &f.Hadamard); random != nil {
			f.NoSigns = true
			if _, plain := fmt.Sscanf(part, "h%d", &f.Hadamard); plain != nil {
				err = fmt.Errorf("format %q: %q is unknown: use 3/4, rht16 or h16", name, part)
			}
		}
	}
	if err != nil {
		return f, err
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
		c := castArgs{out.matrix(), x.matrix(), cmp.Or(x.DType.element(), out.DType.element())}
		if x.DType.element() != nil {
			tensor.Parallel(ex, c.to.Rows, c.ops(), c, decodeRows)
		} else {
			tensor.Parallel(ex, c.to.Rows, c.ops(), c, encodeRows)
		}
		return nil
	})
}

// castArgs holds the arguments of encodeRows and decodeRows.
type castArgs struct {
	to, from tensor.Matrix
	element  *format.Element
}

// ops returns the cost of all elements, in operations of a matrix product.
func (c castArgs) ops() int { return 64 * c.to.Rows * c.to.Cols }

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

// decodeRows decodes rows. BF16 holds all values of 8-bit elements.
func decodeRows(ex *tensor.Exec, c castArgs, lo, hi int) {
	values := c.element.Values()
	for r := lo; r < hi; r++ {
		codes := rowOf[uint8](c.from, r)
		if c.to.DType() == tensor.BF16 {
			to := rowOf[uint16](c.to, r)
			for i, code := range codes {
				to[i] = uint16(math.Float32bits(values[code]) >> 16)
			}
			continue
		}
		to := rowOf[float32](c.to, r)
		for i, code := range codes {
			to[i] = values[code]
		}
	}
}
