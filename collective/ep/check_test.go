package ep

import (
	"errors"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// Wrong tensors are errors that say what was given and what was expected.
func TestBadTensors(t *testing.T) {
	const tokens, slots, hidden = 3, 2, 4
	ex := tensor.NewExec()
	f32 := func(dims ...int) tensor.Tensor { return ex.New(tensor.FP32, dims...) }
	topk := func(ids ...int32) tensor.Tensor {
		k := ex.New(tensor.INT32, len(ids)/slots, slots)
		copy(k.I32(), ids)
		return k
	}
	s, err := NewStandard(collective.NewWorld(1).Comm(0), 4)
	if err != nil {
		t.Fatal(err)
	}
	good := topk(0, 1, 2, 3, -1, 0) // 5 rows
	dispatched := func() *Handle {
		h := new(Handle)
		if _, err := dispatch(s, ex, h, f32(tokens, hidden), good); err != nil {
			t.Fatal(err)
		}
		return h
	}
	combined := func() *Handle {
		h := dispatched()
		if err := s.Combine(ex, h, f32(5, hidden), f32(tokens, slots), f32(tokens, hidden)); err != nil {
			t.Fatal(err)
		}
		return h
	}
	dispatch := func(x, topk tensor.Tensor) error {
		_, err := dispatch(s, ex, new(Handle), x, topk)
		return err
	}
	combine := func(h *Handle, y, weights, out tensor.Tensor) error { return s.Combine(ex, h, y, weights, out) }
	combineBackward := func(h *Handle, dout, dweights tensor.Tensor) error {
		_, err := combineBackward(s, ex, h, dout, dweights)
		return err
	}
	dispatchBackward := func(h *Handle, drows, dx tensor.Tensor) error { return s.DispatchBackward(ex, h, drows, dx) }

	for _, test := range []struct {
		want string
		err  error
	}{
		{"ep: dispatch: x is int32 [3 2]: want fp32 or bf16 [rows, hidden]", dispatch(good, good)},
		{"ep: dispatch: topk is fp32 [3 2]: want int32 [3, slots]", dispatch(f32(tokens, hidden), f32(tokens, slots))},
		{"ep: dispatch: topk[1,0] is 4: want an expert from 0 to 3, or -1", dispatch(f32(2, hidden), topk(0, 1, 4, 0))},
		{"ep: combine: the handle has no routing: call Dispatch", combine(new(Handle), f32(5, hidden), f32(tokens, slots), f32(tokens, hidden))},
		{"ep: combine: y is fp32 [4 4]: Dispatch returned 5 rows", combine(dispatched(), f32(4, hidden), f32(tokens, slots), f32(tokens, hidden))},
		{"ep: combine: weights is fp32 [3 3]: want fp32 [3, 2]", combine(dispatched(), f32(5, hidden), f32(tokens, 3), f32(tokens, hidden))},
		{"ep: combine: out is fp32 [3 5]: want [3, 4]", combine(dispatched(), f32(5, hidden), f32(tokens, slots), f32(tokens, 5))},
		{"ep: combine backward: the handle has no rows of Combine", combineBackward(dispatched(), f32(tokens, hidden), f32(tokens, slots))},
		{"ep: combine backward: dout is fp32 [2 4]: want [3, 4]", combineBackward(combined(), f32(2, hidden), f32(tokens, slots))},
		{"ep: combine backward: dweights is int32 [3 2]: want fp32 [3, 2]", combineBackward(combined(), f32(tokens, hidden), good)},
		{"ep: dispatch backward: drows is fp32 [6 4]: Dispatch returned 5 rows", dispatchBackward(dispatched(), f32(6, hidden), f32(tokens, hidden))},
		{"ep: dispatch backward: dx is fp32 [3 5]: want [3, 4]", dispatchBackward(dispatched(), f32(5, hidden), f32(tokens, 5))},
	} {
		if test.err == nil || !strings.HasPrefix(test.err.Error(), test.want) {
			t.Errorf("got %v, want %s", test.err, test.want)
		}
	}
}

// Ranks that disagree about hidden or the element type are told so, on every call that moves rows.
func TestRanksDisagree(t *testing.T) {
	b := newBatch(8, 16, 2, 4, small)
	for name, other := range map[string]struct {
		hidden int
		dtype  tensor.DType
	}{
		"hidden": {8, tensor.FP32},
		"dtype":  {16, tensor.BF16},
	} {
		for _, by := range ways {
			t.Run(by.name+"/"+name, func(t *testing.T) {
				err := by.run(2, func(c *collective.Comm) error {
					mine, dtype := *b, tensor.FP32
					if c.Rank() == 1 {
						mine.hidden, dtype = other.hidden, other.dtype
						mine.x, mine.dout = b.x[:8*other.hidden], b.dout[:8*other.hidden]
					}
					l, err := newLayer(c, by, &mine, dtype)
					if err != nil {
						return err
					}
					return l.step()
				})
				var m *collective.MismatchError
				if !errors.As(err, &m) && (err == nil || !strings.Contains(err.Error(), "disagree")) { // of a process, only the text comes back
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
