package ep

// Rows that travel as MXFP8: what comes is what quantizing at the receiver would give, and costs
// its bytes.

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// with is a way whose exchanges have options.
func (w way) with(name string, o Options) way {
	make := w.make
	w.name += " " + name
	w.make = func(c *collective.Comm, experts int) (Exchange, error) {
		s, err := make(c, experts)
		if err == nil {
			s.(*OneSided).Options = o
		}
		return s, err
	}
	return w
}

var (
	oneSidedWays = []way{ways[1], ways[3], ways[5]}
	bothMXFP8    = Options{Dispatch: MXFP8, CombineBackward: MXFP8}
)

// quantized is rows [n, hidden] as MXFP8 holds them.
func quantized(dtype tensor.DType, rows []float32, hidden int) []float32 {
	ex := execs.Get().(*tensor.Exec)
	defer execs.Put(ex)
	defer ex.Reset()
	m := matrix(ex, dtype, rows, hidden)
	q := mx.New(ex, mx.E4M3, mx.AlongRows, m.Dim(0), hidden)
	mx.Quantize(ex, q, m.Mat(), mx.RCEIL)
	mx.Dequantize(ex, m.Mat(), q)
	return numbers(m)
}

// Forward, the layer sees the quantized x; backward, the experts see the quantized gradient, and
// the sums of what they make of it are as ever. Nothing else is rounded.
func TestMXFP8Rows(t *testing.T) {
	all := map[string]*batch{"sums that round": newBatch(61, 70, 4, 16, normal)}
	for _, name := range []string{"no tokens", "odd hidden", "one expert", "masked", "twice"} {
		all[name] = cases()[name]
	}
	for name, b := range all {
		for _, by := range oneSidedWays {
			for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
				for _, np := range []int{1, 8} {
					for _, split := range splits(b.tokens(), np) {
						t.Run(fmt.Sprintf("%s/%s/%v/%v", name, by.name, dtype, split), func(t *testing.T) {
							rounded := *b
							rounded.x = quantized(dtype, b.x, b.hidden)
							want := rounded.run(t, by, dtype, split)
							want.dy = quantized(dtype, want.dy, b.hidden)
							want.drows, want.dx = rounded.transposed(dtype, want.dy)
							b.run(t, by.with("mxfp8", bothMXFP8), dtype, split).wantSame(t, want)
						})
					}
				}
			}
		}
	}
}

// transposed is what the experts make of dy, ordered by expert, token and slot, and the sums of
// that by token.
func (b *batch) transposed(dtype tensor.DType, dy []float32) (drows, dx []float32) {
	row := make([]int, len(b.topk)) // of each choice
	for e := range b.experts {
		for i, chosen := range b.topk {
			if int(chosen) != e {
				continue
			}
			row[i] = len(drows) / b.hidden
			for _, v := range dy[len(drows):][:b.hidden] {
				drows = append(drows, round(dtype, v*expertSlope(e)))
			}
		}
	}
	dx = make([]float32, len(b.x))
	for t := range b.tokens() {
		for j := range b.hidden {
			var sum float32
			for i := t * b.slots; i < (t+1)*b.slots; i++ {
				if b.topk[i] >= 0 {
					sum += drows[row[i]*b.hidden+j]
				}
			}
			dx[t*b.hidden+j] = round(dtype, sum)
		}
	}
	return drows, dx
}

func TestMXFP8WarmStepsDoNotAllocate(t *testing.T) {
	testWarmSteps(t, oneSidedWays[0].with("mxfp8", Options{MXFP8, MXFP8, 1.5}))
}

func TestOptions(t *testing.T) {
	for _, w := range []Wire{Plain, MXFP8} {
		if got, err := ParseWire(w.String()); got != w || err != nil {
			t.Errorf("%v was read as %v, %v", w, got, err)
		}
	}
	if _, err := ParseWire("fp8"); err == nil || !strings.Contains(err.Error(), `"fp8" cannot be exchanged: use bf16`) {
		t.Errorf("got %v", err)
	}
	c := collective.NewWorld(1).Comm(0)
	for _, test := range []struct {
		exchange string
		options  Options
		want     string
	}{
		{"onesided", Options{MXFP8, MXFP8, 1.25}, ""},
		{"standard", Options{}, ""},
		{"standard", Options{Dispatch: MXFP8}, "dispatch in mxfp8, combine backward in bf16 and capacity 0 need the onesided exchange, not standard"},
		{"onesided", Options{Capacity: -1}, "the capacity is -1 times the mean: give 0 (no limit) or more"},
		{"ring", Options{}, `the exchange is "ring": use onesided or standard`},
	} {
		_, err := New(test.exchange, c, 4, test.options)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s with %+v: got %v, want %q", test.exchange, test.options, err, test.want)
		}
	}
}
