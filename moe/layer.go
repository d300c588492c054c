package moe

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// feedForward is the second half of a block. x and dy: [tokens, dim].
type feedForward interface {
	forward(p *pass, x tensor.Tensor) (tensor.Tensor, error)
	backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error)
}

// moeLayer is a Mixture-of-Experts layer: routed experts, spread over the ranks, and shared
// experts, which every token visits where it is. No choice is dropped, unless the exchange limits what an expert takes.
type moeLayer struct {
	router   *router
	exchange ep.Exchange
	routed   *ffn // this rank's experts
	shared   *denseFFN

	handle  ep.Handle
	dscores tensor.Tensor // gradient of the balance loss
}

// forward returns shared(x) + Σ_k weight_k·expert_k(x).
func (l *moeLayer) forward(p *pass, x tensor.Tensor) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	chosen, weights := r.forward(ex, x)
	p.observe("topk_index", chosen)
	p.observe("topk_weight", weights)
	if p.train {
		r.count()
	}
	l.dscores = ex.New(tensor.FP32, x.Dim(0), r.cfg.Experts)
	r.balanceLoss(p.sequences, l.dscores, p.batch.Seq, p.batch.GlobalSequences)

	arrival, err := l.exchange.StartDispatch(ex, &l.handle, x, chosen)
	if err != nil {
		return x, err
	}
	p.loss.Dropped += l.handle.Dropped
	var shared tensor.Tensor
	if l.shared != nil { // while slower ranks still send
		shared = l.shared.run(p, x)
	}
	rows, err := received(ex, arrival)
	if err != nil {
		return x, err
	}
	l.showDispatched(ex, arrival, x)
	out := like(ex, x)
	y := l.routed.forward(p, arriving{rows, arrival.MX}, l.handle.GroupEnds)
	if err := l.exchange.Combine(ex, &l.handle, y, weights, out); err != nil {
		return x, err
	}
	if l.shared != nil {
		tensor.Add(ex, out.Mat(), out.Mat(), shared.Mat())
	}
	return out, nil
}

// backward adds to the weights' gradients and returns that of x.
func (l *moeLayer) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	dweights := ex.New(tensor.FP32, dy.Dim(0), r.cfg.TopK)
	arrival, err := l.exchange.StartCombineBackward(ex, &l.handle, dy, dweights)
	if err != nil {
		return dy, err
	}
	routed := r.backward(p, dweights, l.dscores)
	var shared tensor.Tensor
	if l.shared != nil {
		shared = l.shared.network.backward(p, arriving{Tensor: dy})
	}
	drows, err := received(ex, arrival)
	if err != nil {
		return dy, err
	}
	l.showCombined(ex, arrival, dy)
	dx := like(ex, dy)
	drows = l.routed.backward(p, arriving{drows, arrival.MX})
	if err := l.exchange.DispatchBackward(ex, &l.handle, drows, dx); err != nil {
		return dy, err
	}
	tensor.Add(ex, dx.Mat(), dx.Mat(), routed.Mat())
	if l.shared != nil {
		tensor.Add(ex, dx.Mat(), dx.Mat(), shared.Mat())
	}
	return dx, nil
}

// denseFFN is one network that all tokens go through.
type denseFFN struct{ network *ffn }

func newDenseFFN(b *builder, cfg Config, prefix string, layer, inter int) *denseFFN {
	return &denseFFN{network: newFFN(b, b.dense, cfg, []string{prefix}, layer, inter)}
}

// run is forward, which cannot fail.
func (d *denseFFN) run(p *pass, x tensor.Tensor) tensor.Tensor {
	return d.network.forward(p, arriving{Tensor: x}, nil)
}

func (d *denseFFN) forward(p *pass, x tensor.Tensor) (tensor.Tensor, error) { return d.run(p, x), nil }

func (d *denseFFN) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	return d.network.backward(p, arriving{Tensor: dy}), nil
}
