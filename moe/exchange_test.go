package moe

import (
	"errors"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

var errLost = errors.New("the peer is lost")

// failing is an exchange whose call number n fails.
type failing struct {
	ep.Exchange
	n *int
}

func (f failing) fails() bool {
	*f.n--
	return *f.n < 0
}

func (f failing) Combine(ex *tensor.Exec, h *ep.Handle, y, weights, out tensor.Tensor) error {
	if f.fails() {
		return errLost
	}
	return f.Exchange.Combine(ex, h, y, weights, out)
}

func (f failing) StartDispatch(ex *tensor.Exec, h *ep.Handle, x, topk tensor.Tensor) (ep.Arrival, error) {
	if f.fails() {
		return ep.Arrival{}, errLost
	}
	return f.Exchange.StartDispatch(ex, h, x, topk)
}

func (f failing) StartCombineBackward(ex *tensor.Exec, h *ep.Handle, dout, dweights tensor.Tensor) (ep.Arrival, error) {
	if f.fails() {
		return ep.Arrival{}, errLost
	}
	return f.Exchange.StartCombineBackward(ex, h, dout, dweights)
}

func (f failing) DispatchBackward(ex *tensor.Exec, h *ep.Handle, drows, dx tensor.Tensor) error {
	if f.fails() {
		return errLost
	}
	return f.Exchange.DispatchBackward(ex, h, drows, dx)
}

// An exchange that fails ends the pass with an error that says where, and nothing stays in the
// arena.
func TestExchangeErrors(t *testing.T) {
	cfg, comm := tiny(), collective.NewWorld(1).Comm(0)
	for _, c := range []struct {
		recompute Recompute
		where     []string // of each call
	}{
		{RecomputeNone, []string{"layer 1", "layer 1", "layer 1, backward", "layer 1, backward"}},
		{RecomputeFull, []string{"layer 1", "layer 1", "layer 1, forward again"}},
	} {
		for n, where := range c.where {
			exchange, err := ep.NewStandard(comm, cfg.Experts)
			if err != nil {
				t.Fatal(err)
			}
			m, err := New(cfg, Unquantized(tensor.FP32), 8, comm, failing{exchange, &n})
			if err != nil {
				t.Fatal(err)
			}
			m.Recompute = c.recompute
			ex := tensor.NewExec()
			mark := ex.Mark()
			if _, err = m.Train(ex, batchOf(1, 2, 8, cfg.Vocab)); !errors.Is(err, errLost) {
				t.Errorf("%v: Train returned %v", c.recompute, err)
			}
			contains(t, err, where)
			if ex.Mark() != mark {
				t.Errorf("%s: Train left its activations in the arena", where)
			}
		}
	}
}
