package bench

import (
	"context"
	"time"

	"spmoe/tensor"
)

// A Layer is a linear layer, or the experts of one rank, whose forward product is measured.
type Layer struct {
	Name         string
	Groups       int // of experts; 0: one weight for all rows
	Rows         int // in total, or per group
	Outputs, Sum int
}

// MXFP8OverBF16 measures each layer in both formats, in turns on one core, and yields the ratio of
// the MXFP8 time to the BF16 time. It ends early with ctx's error when ctx is cancelled.
func MXFP8OverBF16(ctx context.Context, quick bool, layers []Layer, yield func(l Layer, shape string, ratio float64)) error {
	e := effort{rounds: 15, sample: 80 * time.Millisecond}
	if quick {
		e = effort{rounds: 3, sample: 5 * time.Millisecond}
	}
	s := newSuite()
	defer s.close()
	for _, l := range layers {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k := compared(inMXFP8, func(f format) kernel {
			if l.Groups > 0 {
				return grouped(f, tensor.BF16, l.Groups, l.Rows, l.Outputs, l.Sum)
			}
			return gemm(f, l.Rows, l.Outputs, l.Sum)
		})
		r := e.measure(s, k)
		yield(l, r.Shape, 1/r.OverBF16)
	}
	return ctx.Err()
}
