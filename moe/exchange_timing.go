package moe

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// timedExchange is an exchange that reports the time of the calls that layers make to the profile.
type timedExchange struct{ ep.Exchange }

func (t timedExchange) StartDispatch(ex *tensor.Exec, h *ep.Handle, x, topk tensor.Tensor) (ep.Arrival, error) {
	defer ex.ProfilingRows(profile.Exchange, topk.Len(), x.Dim(1)).End()
	return t.Exchange.StartDispatch(ex, h, x, topk)
}

func (t timedExchange) Combine(ex *tensor.Exec, h *ep.Handle, y, weights, out tensor.Tensor) error {
	defer ex.ProfilingRows(profile.Exchange, weights.Len(), out.Dim(1)).End()
	return t.Exchange.Combine(ex, h, y, weights, out)
}

func (t timedExchange) StartCombineBackward(ex *tensor.Exec, h *ep.Handle, dout, dweights tensor.Tensor) (ep.Arrival, error) {
	defer ex.ProfilingRows(profile.Exchange, dweights.Len(), dout.Dim(1)).End()
	return t.Exchange.StartCombineBackward(ex, h, dout, dweights)
}

func (t timedExchange) DispatchBackward(ex *tensor.Exec, h *ep.Handle, drows, dx tensor.Tensor) error {
	defer ex.ProfilingRows(profile.Exchange, drows.Dim(0), dx.Dim(1)).End()
	return t.Exchange.DispatchBackward(ex, h, drows, dx)
}

// received waits for the rows of a call and returns them as numbers.
func received(ex *tensor.Exec, a ep.Arrival) (tensor.Tensor, error) {
	defer ex.Profiling(profile.Exchange).End()
	if err := a.Wait(ex); err != nil {
		return tensor.Tensor{}, err
	}
	ex.Enter(profile.Quantize)
	return a.Numbers(ex), nil
}
