package moe

import (
	"errors"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// failing is an exchange one call of which fails.
type failing struct {
	ep.Exchange
	call string
}

var errLost = errors.New("the peer is lost")

func (f failing) Combine(ex *tensor.Exec, h *ep.Handle, y, weights, out tensor.Tensor) error {
	if f.call == "Combine" {
		return errLost
	}
	return f.Exchange.Combine(ex, h, y, weights, out)
}

func (f failing) StartDispatch(ex *tensor.Exec, h *ep.Handle, x, topk tensor.Tensor) (ep.Arrival, error) {
	if f.call == "Dispatch" {
		return ep.Arrival{}, errLost
	}
	return f.Exchange.StartDispatch(ex, h, x, topk)
}

func (f failing) StartCombineBackward(ex *tensor.Exec, h *ep.Handle, dout, dweights tensor.Tensor) (ep.Arrival, error) {
	if f.call == "CombineBackward" {
		return ep.Arrival{}, errLost
	}
	return f.Exchange.StartCombineBackward(ex, h, dout, dweights)
}

func (f failing) DispatchBackward(ex *tensor.Exec, h *ep.Handle, drows, dx tensor.Tensor) error {
	if f.call == "DispatchBackward" {
		return errLost
	}
	return f.Exchange.DispatchBackward(ex, h, drows, dx)
}

func TestExchangeErrors(t *testing.T) {
	for _, mtpLayers := range []int{0, 1} {
		cfg := with(tiny(), func(c *Config) { c.MTPLayers = mtpLayers })
		comm := collective.NewWorld(1).Comm(0)
		exchange, err := ep.NewStandard(comm, cfg.Experts)
		if err != nil {
			t.Fatal(err)
		}
		for call, backward := range map[string]bool{"Dispatch": false, "Combine": false, "CombineBackward": true, "DispatchBackward": true} {
			m, err := New(cfg, Unquantized(tensor.FP32), 8, comm, failing{exchange, call})
			if err != nil {
				t.Fatal(err)
			}
			ex := tensor.NewExec()
			mark := ex.Mark()
			_, err = m.Train(ex, batchOf(1, 2, 8, cfg.Vocab))
			layer := "layer 1"
			if backward {
				layer = []string{"layer 1, backward", "layer 2, backward"}[mtpLayers] // the last layer comes first
			}
			if !errors.Is(err, errLost) {
				t.Errorf("%s failed and Train returned %v", call, err)
			}
			contains(t, err, layer)
			if ex.Mark() != mark {
				t.Errorf("%s failed and Train left its activations in the arena", call)
			}
		}
	}
}
