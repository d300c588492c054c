package moe

import (
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// feedForward is the second half of a block. x and dy: [tokens, dim].
type feedForward interface {
	forward(p *pass, x tensor.Tensor) (tensor.Tensor, error)
	backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error)
	again(p *pass, x tensor.Tensor) // makes anew what was brief
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

// forward returns shared(x) + Σ_k weight_k·expert_k(x). Made again, it leaves the shared experts' part out.
func (l *moeLayer) forward(p *pass, x tensor.Tensor) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	chosen, weights := r.forward(p, x)
	p.observe("topk_index", chosen)
	p.observe("topk_weight", weights)
	losses := p.sequences
	if p.again {
		losses = nil
	} else if p.train {
		r.count()
	}
	l.dscores = ex.New(tensor.FP32, x.Dim(0), r.cfg.Experts)
	r.balanceLoss(ex, losses, l.dscores, p.batch.Seq, p.batch.GlobalSequences)

	arrival, err := l.exchange.StartDispatch(ex, &l.handle, x, chosen)
	if err != nil {
		return x, err
	}
	var shared tensor.Tensor
	if l.shared != nil { // while slower ranks still send
		shared = l.beside(p, x)
	}
	rows, err := received(ex, arrival)
	if err != nil {
		return x, err
	}
	if !p.again {
		p.loss.Dropped += l.handle.Dropped
		l.showDispatched(ex, arrival, x)
	}
	out := like(ex, x)
	y := l.routed.forward(p, arriving{rows, arrival.MX}, l.handle.GroupEnds)
	if err := l.exchange.Combine(ex, &l.handle, y, weights, out); err != nil {
		return x, err
	}
	if shared.Valid() {
		tensor.Add(ex, out.Mat(), out.Mat(), shared.Mat())
	}
	return out, nil
}

// beside returns shared(x), of which no backward pass reads the last product.
func (l *moeLayer) beside(p *pass, x tensor.Tensor) tensor.Tensor {
	f := l.shared.network
	f.hidden(p, arriving{Tensor: x}, nil)
	if p.again {
		return tensor.Tensor{}
	}
	defer p.brief(p.brief(true))
	return f.output(p)
}

func (l *moeLayer) again(p *pass, x tensor.Tensor) {
	l.router.widen(p, x)
	if l.shared != nil {
		l.shared.again(p, x)
	}
	l.routed.activate(p)
}

// backward adds to the weights' gradients and returns that of x.
func (l *moeLayer) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	dweights := ex.New(tensor.FP32, dy.Dim(0), r.cfg.TopK)
	arrival, err := l.exchange.StartCombineBackward(ex, &l.handle, dy, dweights)
	if err != nil {
		return dy, err
	}
	var shared tensor.Tensor
	if l.shared != nil {
		shared = l.shared.network.backward(p, arriving{Tensor: dy})
	}
	drows, err := received(ex, arrival)
	if err != nil {
		return dy, err
	}
	l.showCombined(ex, arrival, dy)
	routed := r.backward(p, dweights, l.dscores)
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

// forward, made again, leaves out the last product, which no backward pass reads.
func (d *denseFFN) forward(p *pass, x tensor.Tensor) (y tensor.Tensor, _ error) {
	if d.network.hidden(p, arriving{Tensor: x}, nil); !p.again {
		y = d.network.output(p)
	}
	return y, nil
}

func (d *denseFFN) again(p *pass, x tensor.Tensor) {
	d.network.saved.x = x
	d.network.activate(p)
}

func (d *denseFFN) backward(p *pass, dy tensor.Tensor) (tensor.Tensor, error) {
	return d.network.backward(p, arriving{Tensor: dy}), nil
}
