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
// experts, which every token visits where it is. No token is ever dropped.
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
	p.loss.Balance += r.balanceLoss(l.dscores, p.batch.Seq, p.batch.GlobalSequences)

	rows, err := l.exchange.Dispatch(ex, &l.handle, x, chosen)
	if err != nil {
		return x, err
	}
	out := like(ex, x)
	if err := l.exchange.Combine(ex, &l.handle, l.routed.forward(p, rows, l.handle.GroupEnds), weights, out); err != nil {
		return x, err
	}
	if l.shared != nil {
		shared, err := l.shared.forward(p, x)
		tensor.Add(ex, out.Mat(), out.Mat(), shared.Mat())
		return out, err
	}
	return out, nil
}

// backward adds to the weights' gradients and returns that of x.
func (l *moeLayer) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	dweights := ex.New(tensor.FP32, dy.Dim(0), r.cfg.TopK)
	drows, err := l.exchange.CombineBackward(ex, &l.handle, dy, dweights)
	if err != nil {
		return dy, err
	}
	dx := like(ex, dy)
	if err := l.exchange.DispatchBackward(ex, &l.handle, l.routed.backward(ex, drows), dx); err != nil {
		return dy, err
	}
	tensor.Add(ex, dx.Mat(), dx.Mat(), r.backward(ex, dweights, l.dscores).Mat())
	if l.shared != nil {
		shared, err := l.shared.backward(p, dy)
		tensor.Add(ex, dx.Mat(), dx.Mat(), shared.Mat())
		return dx, err
	}
	return dx, nil
}

// denseFFN is one network that all tokens go through.
type denseFFN struct {
	network *ffn
	ends    [1]int32
}

func newDenseFFN(b *builder, cfg Config, prefix string, layer, inter int) *denseFFN {
	return &denseFFN{network: newFFN(b, b.dense, cfg, []string{prefix}, layer, inter)}
}

func (d *denseFFN) forward(p *pass, x tensor.Tensor) (tensor.Tensor, error) {
	d.ends[0] = int32(x.Dim(0))
	return d.network.forward(p, x, d.ends[:]), nil
}

func (d *denseFFN) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	return d.network.backward(p.ex, dy), nil
}
