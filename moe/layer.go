package moe

import (
	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// feedForward is the second half of a block. x, dy and the results of forward and backward are
// [tokens, dim].
type feedForward interface {
	forward(p phase, x tensor.Tensor, s *feedState) (tensor.Tensor, error)
	backward(p phase, dy tensor.Tensor, s *feedState) (tensor.Tensor, error)
	backwardWeight(p phase, s *feedState)
	recompute(p phase, x tensor.Tensor, s *feedState) // recomputes the state that was in scratch memory
}

// feedKind is what a configuration says about the second half of a layer.
type feedKind interface {
	// linears calls add with the matrices in the order of a pass.
	linears(add func(LinearLayer))
	// build adds the parameters of a layer to b. prefix begins their names.
	build(b *builder, prefix string, layer int, at rankContext) feedForward
}

// rankContext is what the Mixture-of-Experts layers of a model share on this rank: the communicator
// of the exchange, and the exchange.
type rankContext struct {
	comm     *collective.Comm
	exchange ep.Exchange
}

// denseKind is one network that all tokens visit.
type denseKind struct{ Config }

func (c denseKind) linears(add func(LinearLayer)) {
	addGated(add, "ffn_down", matrix("ffn_gate_up", Dense, c.Dim, c.DenseInter))
}

func (c denseKind) build(b *builder, prefix string, layer int, _ rankContext) feedForward {
	return newDenseFFN(b, Dense, c.Config, prefix, layer, c.DenseInter)
}

// expertsKind is a Mixture-of-Experts layer.
type expertsKind struct{ Config }

func (c expertsKind) linears(add func(LinearLayer)) {
	add(matrix("router", Router, c.Dim, c.Experts))
	if c.SharedExperts > 0 {
		addGated(add, "shared_down", matrix("shared_gate_up", Shared, c.Dim, c.SharedExperts*c.ExpertInter))
	}
	expert := matrix("experts_gate_up", Routed, c.Dim, c.ExpertInter)
	expert.Held, expert.Met = c.Experts, c.TopK
	addGated(add, "experts_down", expert)
}

func (c expertsKind) build(b *builder, prefix string, layer int, at rankContext) feedForward {
	perRank := c.Experts / at.comm.Size()
	m := &moeLayer{
		router: newRouter(b, c.Config, prefix, layer), exchange: at.exchange,
		routed: newExperts(b, c.Config, prefix, layer, at.comm.Rank()*perRank, perRank),
	}
	if b.precision.draws() {
		m.passRows = &passRows{}
	}
	if c.SharedExperts > 0 {
		m.shared = newDenseFFN(b, Shared, c.Config, prefix+"shared_experts.", layer, c.SharedExperts*c.ExpertInter)
	}
	return m
}

// feedState is the state of the second half of a block in a pass.
type feedState struct {
	network ffnState // the dense network, or the shared experts

	router  routerState
	dscores tensor.Tensor // [tokens, experts]: gradient of the balance loss
	handle  ep.Handle
	routed  ffnState
}

// moeLayer is a Mixture-of-Experts layer: routed experts, spread over the ranks, and shared
// experts, which every token visits on its own rank. No choice is dropped unless the exchange
// limits the load of an expert.
type moeLayer struct {
	router   *router
	exchange ep.Exchange
	routed   *ffn // this rank's experts
	shared   *denseFFN
	passRows *passRows
}

// forward returns shared(x) + Σ_k weight_k·expert_k(x). A recomputation leaves out the shared
// experts' part.
func (l *moeLayer) forward(p phase, x tensor.Tensor, s *feedState) (tensor.Tensor, error) {
	chosen, weights := l.route(p, x, s)
	p.in(Routed)
	s.handle.Rows = p.saved
	timed := p.ex.ProfilingRows(profile.Exchange, chosen.Len(), x.Dim(1))
	arrival, err := l.exchange.StartDispatch(p.ex, &s.handle, x, chosen)
	timed.End()
	if err != nil {
		return x, err
	}
	var shared tensor.Tensor
	if l.shared != nil { // while slower ranks are still sending
		shared = l.shared.output(p, x, &s.network)
	}
	rows, err := received(p.ex, arrival)
	if err != nil {
		return x, err
	}
	if !p.recomputing {
		p.loss.Dropped += s.handle.Dropped
	}
	// The peers of Combine read y in place, now and in the backward pass.
	groups := rowGroups{ends: s.handle.GroupEnds, whole: s.handle.Whole, before: s.handle.Before, inPasses: l.passRows}
	l.passRows.record(p, groups)
	y := l.routed.forward(p, p.saved, activation{Tensor: rows, rowGroups: groups, rows: arrival.MX}, &s.routed)
	out := like(p.scratch, x)
	timed = p.ex.ProfilingRows(profile.Exchange, weights.Len(), out.Dim(1))
	err = l.exchange.Combine(p.ex, &s.handle, y, weights, out)
	if timed.End(); err != nil {
		return x, err
	}
	if shared.Valid() {
		tensor.Add(p.ex, out.Mat(), out.Mat(), shared.Mat())
	}
	return out, nil
}

// route returns each token's experts and their weights, and computes the balance loss.
func (l *moeLayer) route(p phase, x tensor.Tensor, s *feedState) (chosen, weights tensor.Tensor) {
	r := l.router
	chosen, weights = r.forward(p, x, &s.router)
	p.observe("topk_index", chosen)
	p.observe("topk_weight", weights)
	p.record(chosen, weights)
	losses := p.sequences
	if p.recomputing {
		losses = nil
	} else if p.train {
		r.count(p, &s.router)
	}
	s.dscores = p.saved.New(tensor.FP32, x.Dim(0), r.cfg.Experts)
	r.balanceLoss(p, &s.router, losses, s.dscores)
	return chosen, weights
}

func (l *moeLayer) recompute(p phase, x tensor.Tensor, s *feedState) {
	l.router.widen(p, x, &s.router)
	if l.shared != nil {
		l.shared.recompute(p, x, s)
	}
	s.routed.h.restore(l.routed.activate(p, &s.routed))
}

// backward returns the gradient of x. Its two exchanges are the only ones of the backward pass.
func (l *moeLayer) backward(p phase, dy tensor.Tensor, s *feedState) (tensor.Tensor, error) {
	ex, r := p.ex, l.router
	p.in(Routed)
	dweights := p.scratch.New(tensor.FP32, dy.Dim(0), r.cfg.TopK)
	s.handle.Rows = p.saved
	timed := ex.ProfilingRows(profile.Exchange, dweights.Len(), dy.Dim(1))
	arrival, err := l.exchange.StartCombineBackward(ex, &s.handle, dy, dweights)
	timed.End()
	if err != nil {
		return dy, err
	}
	var shared tensor.Tensor
	if l.shared != nil { // while slower ranks are still sending
		shared = l.shared.network.backward(p, activation{Tensor: dy}, &s.network)
	}
	drows, err := received(ex, arrival)
	if err != nil {
		return dy, err
	}
	routed := r.backward(p, dweights, s.dscores, &s.router)
	dx := like(p.scratch, dy)
	drows = l.routed.backward(p, activation{Tensor: drows, rows: arrival.MX}, &s.routed)
	timed = ex.ProfilingRows(profile.Exchange, drows.Dim(0), dx.Dim(1))
	err = l.exchange.DispatchBackward(ex, &s.handle, drows, dx)
	if timed.End(); err != nil {
		return dy, err
	}
	tensor.Add(ex, dx.Mat(), dx.Mat(), routed.Mat())
	if l.shared != nil {
		tensor.Add(ex, dx.Mat(), dx.Mat(), shared.Mat())
	}
	return dx, nil
}

// backwardWeight adds to the gradients of the router and of all experts.
func (l *moeLayer) backwardWeight(p phase, s *feedState) {
	if l.shared != nil {
		l.shared.backwardWeight(p, s)
	}
	l.router.gate.backwardWeight(p, &s.router.gate)
	l.routed.backwardWeight(p, &s.routed)
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

// denseFFN is one network that all tokens visit.
type denseFFN struct{ network *ffn }

func newDenseFFN(b *builder, part Part, cfg Config, prefix string, layer, inter int) *denseFFN {
	return &denseFFN{network: newFFN(b, b.dense, part, cfg, []string{prefix}, layer, inter)}
}

func (d *denseFFN) forward(p phase, x tensor.Tensor, s *feedState) (tensor.Tensor, error) {
	return d.output(p, x, &s.network), nil
}

// output is forward. A recomputation leaves out the last product, which no backward pass reads.
func (d *denseFFN) output(p phase, x tensor.Tensor, s *ffnState) (y tensor.Tensor) {
	if d.network.hidden(p, activation{Tensor: x}, s); !p.recomputing {
		y = d.network.down.forward(p, p.scratch, &s.h, &s.linear.down)
	}
	return y
}

func (d *denseFFN) recompute(p phase, x tensor.Tensor, s *feedState) {
	s.network.x.restore(x)
	s.network.h.restore(d.network.activate(p, &s.network))
}

func (d *denseFFN) backward(p phase, dy tensor.Tensor, s *feedState) (tensor.Tensor, error) {
	return d.network.backward(p, activation{Tensor: dy}, &s.network), nil
}

func (d *denseFFN) backwardWeight(p phase, s *feedState) { d.network.backwardWeight(p, &s.network) }

// record records the routes of a layer.
func (p phase) record(experts, weights tensor.Tensor) {
	if r := p.batch.Routes; r != nil && r.Record != nil && !p.recomputing {
		r.Record(p.layer, experts.I32(), weights.F32())
	}
}
