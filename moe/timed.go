package moe

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// timed is an exchange whose time is known to the profile.
type timed struct{ exchange ep.Exchange }

func (t timed) Dispatch(ex *tensor.Exec, h *ep.Handle, x, topk tensor.Tensor) (tensor.Tensor, error) {
	defer ex.Enter(ex.Enter(profile.Exchange))
	return t.exchange.Dispatch(ex, h, x, topk)
}

func (t timed) Combine(ex *tensor.Exec, h *ep.Handle, y, weights, out tensor.Tensor) error {
	defer ex.Enter(ex.Enter(profile.Exchange))
	return t.exchange.Combine(ex, h, y, weights, out)
}

func (t timed) CombineBackward(ex *tensor.Exec, h *ep.Handle, dout, dweights tensor.Tensor) (tensor.Tensor, error) {
	defer ex.Enter(ex.Enter(profile.Exchange))
	return t.exchange.CombineBackward(ex, h, dout, dweights)
}

func (t timed) DispatchBackward(ex *tensor.Exec, h *ep.Handle, drows, dx tensor.Tensor) error {
	defer ex.Enter(ex.Enter(profile.Exchange))
	return t.exchange.DispatchBackward(ex, h, drows, dx)
}
