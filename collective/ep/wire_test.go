package ep

// Rows that travel as MXFP8: what comes is what quantizing at the receiver would give, and costs
// its bytes.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
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
				for _, np := range []int{1, 2, 8} {
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

// The codes that come are those that the receiver would make, and every rank counts the bytes that
// it has moved.
func TestMXFP8Codes(t *testing.T) {
	b := newBatch(40, 70, 2, 8, normal)
	const scales = 3 // of 70 elements
	for _, by := range oneSidedWays {
		for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
			t.Run(fmt.Sprintf("%s/%v", by.name, dtype), func(t *testing.T) {
				err := by.run(2, func(c *collective.Comm) error {
					part := b.slice(20*c.Rank(), 20*c.Rank()+20)
					plain, err := newLayer(c, by, part, dtype)
					if err != nil {
						return err
					}
					l, err := newLayer(c, by.with("mxfp8", bothMXFP8), part, dtype)
					if err != nil {
						return err
					}
					compare := func(call string, size int, start func(l *layer) (Arrival, error)) error {
						a, err := start(plain)
						if err != nil {
							return err
						}
						if err := a.Wait(plain.ex); err != nil {
							return err
						}
						rows := a.Numbers(plain.ex)
						before := c.Stats()[collective.KindDispatch].Bytes
						if a, err = start(l); err != nil {
							return err
						}
						if err := errors.Join(a.Wait(l.ex), a.Wait(l.ex)); err != nil {
							return err
						}
						if got := c.Stats()[collective.KindDispatch].Bytes - before; got != int64(l.h.Sent*size) {
							t.Errorf("%s moved %d bytes for %d rows", call, got, l.h.Sent)
						}
						want := mx.New(l.ex, mx.E4M3, mx.AlongRows, rows.Dim(0), rows.Dim(1))
						mx.Quantize(l.ex, want, rows.Mat(), mx.RCEIL)
						if !bytes.Equal(a.MX.Codes.U8(), want.Codes.U8()) || !bytes.Equal(a.MX.Scales.U8(), want.Scales.U8()) {
							t.Errorf("%s: the codes are not those of the rows", call)
						}
						return nil
					}
					code, number := b.hidden+scales, b.hidden*dtype.Size()
					if err := compare("dispatch", code, func(l *layer) (Arrival, error) {
						return l.StartDispatch(l.ex, &l.h, l.x, l.topk)
					}); err != nil {
						return err
					}
					y := plain.ex.New(dtype, plain.h.Received, b.hidden)
					y.Zero()
					for _, l := range []*layer{plain, l} {
						if err := l.Combine(l.ex, &l.h, y, l.weights, l.out); err != nil {
							return err
						}
					}
					return compare("combine backward", code+number, func(l *layer) (Arrival, error) {
						return l.StartCombineBackward(l.ex, &l.h, l.x, l.dweights)
					})
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// Work between the two halves of a call neither sees nor disturbs the exchange, as long as it does
// not use the communicator.
func TestStartAndWait(t *testing.T) {
	b := newBatch(37, 12, 3, 16, small)
	for _, by := range append(slices.Clone(ways), oneSidedWays[0].with("mxfp8", bothMXFP8)) {
		t.Run(by.name, func(t *testing.T) {
			err := by.run(4, func(c *collective.Comm) error {
				l, err := newLayer(c, by, b, tensor.BF16)
				if err != nil {
					return err
				}
				for range 3 {
					if err := l.step(); err != nil {
						return err
					}
					out, dx := numbers(l.out), numbers(l.dx)
					if err := l.splitStep(); err != nil {
						return err
					}
					if !slices.Equal(numbers(l.out), out) || !slices.Equal(numbers(l.dx), dx) {
						t.Errorf("rank %d: a step in halves differs from one in whole calls", c.Rank())
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// splitStep is step in halves, with work in the arena between them.
func (l *layer) splitStep() error {
	l.ex.Reset()
	work := func() {
		scratch := l.ex.New(tensor.FP32, 1000).F32()
		for i := range scratch {
			scratch[i] = float32(i)
		}
	}
	rows, err := l.StartDispatch(l.ex, &l.h, l.x, l.topk)
	if err != nil {
		return err
	}
	work()
	if err := rows.Wait(l.ex); err != nil {
		return err
	}
	if err := l.Combine(l.ex, &l.h, rows.Numbers(l.ex), l.weights, l.out); err != nil {
		return err
	}
	dy, err := l.StartCombineBackward(l.ex, &l.h, l.out, l.dweights)
	if err != nil {
		return err
	}
	work()
	if err := dy.Wait(l.ex); err != nil {
		return err
	}
	return l.DispatchBackward(l.ex, &l.h, dy.Numbers(l.ex), l.dx)
}

func TestMXFP8WarmStepsDoNotAllocate(t *testing.T) {
	testWarmSteps(t, oneSidedWays[0].with("mxfp8", Options{MXFP8, MXFP8, 1.5}))
}

// Ranks that disagree about the wire are told so.
func TestWiresDisagree(t *testing.T) {
	b := newBatch(8, 64, 2, 4, small)
	for _, by := range oneSidedWays {
		err := by.run(2, func(c *collective.Comm) error {
			mine := by
			if c.Rank() == 1 {
				mine = by.with("mxfp8", Options{Dispatch: MXFP8})
			}
			l, err := newLayer(c, mine, b, tensor.BF16)
			if err != nil {
				return err
			}
			return l.step()
		})
		if err == nil || !strings.Contains(err.Error(), "rows of 66 bytes") || !strings.Contains(err.Error(), "rows of 128 bytes") {
			t.Errorf("%s: got %v", by.name, err)
		}
	}
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
		{"standard", Options{Capacity: 2}, "capacity 2 need the onesided exchange"},
		{"onesided", Options{Capacity: -1}, "the capacity is -1 times the mean: give 0 (no limit) or more"},
		{"ring", Options{}, `the exchange is "ring": use onesided or standard`},
	} {
		_, err := New(test.exchange, c, 4, test.options)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s with %+v: got %v, want %q", test.exchange, test.options, err, test.want)
		}
	}
}
