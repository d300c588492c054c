package moe

import (
	"math"
	"slices"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// router scores every token against every expert in FP32 and selects the experts that the token
// visits.
type router struct {
	cfg  Config
	gate linear // [experts, dim] FP32
	// [experts] FP32: added to the scores for the selection only, and moved according to the load
	bias tensor.Tensor
	// [vocab, topK] FP32: the experts of each token of a hash layer, instead of a selection by
	// scores; they never change, and one that is there twice counts twice
	table tensor.Tensor
	// [experts]: tokens of this rank that chose each expert since the last balance
	load []int64
}

// routerState is the state of a router in a pass.
type routerState struct {
	x       activation    // [tokens, dim] FP32
	scores  tensor.Tensor // [tokens, experts] FP32
	experts tensor.Tensor // [tokens, topK] int32; a recomputation does not choose again
	weights tensor.Tensor // [tokens, topK] FP32
	gate    linearState
	share   []float64 // [sequences, experts], scratch of the balance loss
}

func newRouter(b *builder, cfg Config, prefix string, layer int) *router {
	r := &router{cfg: cfg, gate: linear{part: Router}, load: make([]int64, cfg.Experts)}
	if cfg.isHash(layer) {
		r.table = b.hashTable(cfg, layer)
	} else {
		r.bias = tensor.New(tensor.FP32, cfg.Experts)
	}
	dims := []int{cfg.Experts, cfg.Dim}
	b.add(b.norms, &r.gate.weight, Router, dims, &Param{Name: prefix + "gate.weight", Dims: dims, Init: outputInit(layer)})
	return r
}

// forward returns the chosen experts and their weights, both [tokens, topK]. A recomputation does
// not choose again.
func (r *router) forward(p phase, x tensor.Tensor, s *routerState) (chosen, weights tensor.Tensor) {
	ex := p.ex
	defer ex.ProfilingRows(profile.Router, x.Dim(0), x.Dim(1)).End()
	tokens := x.Dim(0)
	p.in(Router)
	r.widen(p, x, s)
	s.gate.x = &s.x
	s.scores = p.saved.New(tensor.FP32, tokens, r.cfg.Experts)
	r.gate.multiply(ex, s.scores.Mat(), &s.x)
	p.observe("router_logits", s.scores)
	switch r.cfg.ScoreFunc {
	case Softmax:
		tensor.Softmax(ex, s.scores.Mat())
	case SqrtSoftplus:
		tensor.SqrtSoftplus(ex, s.scores.Mat())
	default:
		tensor.Sigmoid(ex, s.scores.Mat())
	}
	experts, replay := p.replayed()
	if !p.recomputing {
		s.experts = p.arena.New(tensor.INT32, tokens, r.cfg.TopK)
		copy(s.experts.I32(), experts)
	}
	s.weights = p.saved.New(tensor.FP32, tokens, r.cfg.TopK)
	tensor.Parallel(ex, tokens, r.work(tokens), routingArgs{r, s, p.batch.Inputs, p.recomputing || experts != nil, replay}, chooseExperts)
	return s.experts, s.weights
}

// scoreWork is the number of operations of a product that take about as long as the router's work
// on one score.
const scoreWork = 64

// work returns the amount of work for some tokens, in the unit of [tensor.Parallel].
func (r *router) work(tokens int) int { return tokens * r.cfg.Experts * scoreWork }

// routingArgs are the arguments of chooseExperts. With chosen, the experts are known already, and
// with replay, [tokens, topK], the weights are too.
type routingArgs struct {
	*router
	*routerState
	tokens []int32
	chosen bool
	replay []float32
}

// chooseExperts sets experts and weights of tokens [lo, hi).
func chooseExperts(ex *tensor.Exec, r routingArgs, lo, hi int) {
	choice := newTopK(ex, r.cfg)
	n, k := r.cfg.Experts, r.cfg.TopK
	scores, experts, weights := r.scores.F32(), r.experts.I32(), r.weights.F32()
	for t := lo; t < hi; t++ {
		row, ids, w := scores[t*n:][:n], experts[t*k:][:k], weights[t*k:][:k]
		switch {
		case r.chosen:
		case r.cfg.ForceBalance: // round robin: the experts' loads differ by at most one token
			for k := range ids {
				ids[k] = int32((t*len(ids) + k) % len(row))
			}
		case r.table.Valid():
			for k, e := range r.table.Index(int(r.tokens[t])).F32() {
				ids[k] = int32(e)
			}
		default:
			choice.choose(ids, row, r.bias.F32())
		}
		if r.replay != nil {
			copy(w, r.replay[t*len(w):])
			continue
		}
		r.weigh(w, ids, row)
	}
}

// widen converts the input of the scores to FP32.
func (r *router) widen(p phase, x tensor.Tensor, s *routerState) {
	s.x = activation{Tensor: p.cheap.New(tensor.FP32, x.Dim(0), r.cfg.Dim)}
	tensor.Convert(p.ex, s.x.Mat(), x.Mat())
}

// weigh computes the weights of the chosen experts: their scores, normalized if configured, scaled.
func (r *router) weigh(w []float32, ids []int32, scores []float32) {
	for k, e := range ids {
		w[k] = scores[e]
	}
	scale := float32(r.cfg.RouteScale)
	if r.cfg.NormTopK {
		scale /= sum(w) + normTopKEps
	}
	for k := range w {
		w[k] *= scale
	}
}

// normTopKEps keeps the normalization finite if all weights are zero.
const normTopKEps = 1e-20

// count adds the choices of a pass to the load.
func (r *router) count(p phase, s *routerState) {
	if p.ex.Dry() {
		return
	}
	for _, e := range s.experts.I32() {
		r.load[e]++
	}
}

// backward returns the gradient of the router's input in FP32. dweights is the gradient of the
// weights, [tokens, topK]. dscores is the gradient of the scores from the balance loss, [tokens,
// experts], and is overwritten.
func (r *router) backward(p phase, dweights, dscores tensor.Tensor, s *routerState) tensor.Tensor {
	defer p.ex.ProfilingRows(profile.Router, s.x.Dim(0), s.x.Dim(1)).End()
	tokens := s.x.Dim(0)
	tensor.Parallel(p.ex, tokens, r.work(tokens), scoresBackwardArgs{r, s, dweights, dscores}, scoresBackward)
	return r.gate.backward(p, p.scratch, activation{Tensor: dscores}, &s.gate)
}

// scoresBackwardArgs are the arguments of scoresBackward.
type scoresBackwardArgs struct {
	*router
	*routerState
	dweights, dscores tensor.Tensor
}

// scoresBackward turns dscores of tokens [lo, hi) into the gradient of their logits, including that
// through the weights.
func scoresBackward(_ *tensor.Exec, r scoresBackwardArgs, lo, hi int) {
	n, k := r.cfg.Experts, r.cfg.TopK
	dscores, scores, experts := r.dscores.F32(), r.scores.F32(), r.experts.I32()
	dweights, weights := r.dweights.F32(), r.weights.F32()
	for t := lo; t < hi; t++ {
		d, row := dscores[t*n:][:n], scores[t*n:][:n]
		r.weighBackward(d, dweights[t*k:][:k], weights[t*k:][:k], experts[t*k:][:k], row)
		r.scoreBackward(d, row)
	}
}

// weighBackward adds to ds the gradient of a token's scores through its weights. Here and below,
// conversions of products keep compilers for arm64 from fusing them with additions, which would
// change bits.
func (r *router) weighBackward(ds, dw, w []float32, ids []int32, scores []float32) {
	scale := float32(r.cfg.RouteScale)
	if !r.cfg.NormTopK {
		for k, e := range ids {
			ds[e] += float32(scale * dw[k])
		}
		return
	}
	// w = scale·s/Σs, so dL/ds_k = (scale·dw_k - Σ dw_j·w_j)/Σs.
	total := float32(normTopKEps)
	var inner float32
	for k, e := range ids {
		total += scores[e]
		inner += float32(dw[k] * w[k])
	}
	for k, e := range ids {
		ds[e] += (float32(scale*dw[k]) - inner) / total
	}
}

// scoreBackward turns the gradient of a token's scores into that of its logits.
func (r *router) scoreBackward(d, s []float32) {
	switch r.cfg.ScoreFunc {
	case Sigmoid:
		for e := range d {
			d[e] *= s[e] * (1 - s[e])
		}
		return
	case SqrtSoftplus:
		for e := range d {
			d[e] *= tensor.SqrtSoftplusSlope(s[e])
		}
		return
	}
	var inner float32
	for e := range d {
		inner += float32(d[e] * s[e])
	}
	for e := range d {
		d[e] = s[e] * (d[e] - inner)
	}
}

// topK selects experts by score plus bias, only from the groups whose two best values have the
// largest sums (node-limited routing).
type topK struct {
	groups, selected int
	values           []float32 // [experts]
	groupValues      []float32 // [groups]
	kept             []int32   // [selected groups]
}

// newTopK allocates its scratch memory in the arena of ex.
func newTopK(ex *tensor.Exec, cfg Config) topK {
	return topK{
		groups: cfg.Groups, selected: cfg.TopKGroups,
		values: ex.New(tensor.FP32, cfg.Experts).F32(), groupValues: ex.New(tensor.FP32, cfg.Groups).F32(),
		kept: ex.New(tensor.INT32, cfg.TopKGroups).I32(),
	}
}

// choose writes the chosen experts to ids, best first. A tie goes to the lower number.
func (p *topK) choose(ids []int32, scores, bias []float32) {
	for e := range p.values {
		p.values[e] = scores[e] + bias[e]
	}
	if p.selected < p.groups {
		p.maskGroups()
	}
	best(ids, p.values)
}

// maskGroups sets the values of all except the best groups to -Inf. Zero would not do, because
// values may be negative (the bias is).
func (p *topK) maskGroups() {
	size := len(p.values) / p.groups
	for g := range p.groupValues {
		first, second := negInf, negInf
		for _, v := range p.values[g*size : (g+1)*size] {
			if v > first {
				first, second = v, first
			} else if v > second {
				second = v
			}
		}
		if size == 1 {
			second = 0
		}
		p.groupValues[g] = first + second
	}
	best(p.kept, p.groupValues)
	for g := range p.groups {
		if slices.Contains(p.kept, int32(g)) {
			continue
		}
		for e := g * size; e < (g+1)*size; e++ {
			p.values[e] = negInf
		}
	}
}

var negInf = float32(math.Inf(-1))

// best writes the indices of the len(ids) largest values to ids, largest first.
func best(ids []int32, values []float32) {
	n := 0
	for i, v := range values {
		at := n
		for at > 0 && v > values[ids[at-1]] {
			at--
		}
		if at == len(ids) {
			continue
		}
		if n < len(ids) {
			n++
		}
		copy(ids[at+1:n], ids[at:n-1])
		ids[at] = int32(i)
	}
}

func sum(x []float32) float32 {
	var s float32
	for _, v := range x {
		s += v
	}
	return s
}

// replayed returns the routes that replace the choices of a layer; nil: there are none.
func (p phase) replayed() (experts []int32, weights []float32) {
	if r := p.batch.Routes; r != nil && r.Replay != nil {
		return r.Replay(p.layer)
	}
	return nil, nil
}
