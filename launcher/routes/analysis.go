package routes

// What routes say: how uneven loads are, how they change, and how far two runs agree.

import "math"

// Balance describes the loads of a step, as means over its layers.
type Balance struct {
	Experts float64 // load of the busiest expert over the mean
	Ranks   float64 // the same of ranks that hold experts
	Unused  float64 // share of experts without tokens
	Drift   float64 // share of the load that other experts have than in the step before; NaN: no step before
}

// Loads computes the balance of successive steps.
type Loads struct {
	header Header
	last   [][]float64 // share of each expert in each layer, in the last step
}

// NewLoads returns one that has no step yet.
func NewLoads(h Header) *Loads { return &Loads{header: h} }

// Add returns the balance of the next step.
func (l *Loads) Add(s Step) (b Balance) {
	h, n := l.header, float64(len(l.header.Layers))
	if l.last == nil {
		b.Drift = math.NaN()
	}
	var now [][]float64
	for i := range h.Layers {
		experts, _ := s.Layer(h, i)
		load, ranks := make([]float64, h.Experts), make([]float64, h.EP)
		for _, e := range experts {
			load[e] += 1 / float64(len(experts))
			ranks[h.ExpertRank(e)] += 1 / float64(len(experts))
		}
		b.Experts += most(load) * float64(h.Experts) / n
		b.Ranks += most(ranks) * float64(h.EP) / n
		for e, share := range load {
			if share == 0 {
				b.Unused += 1 / n / float64(h.Experts)
			}
			if l.last != nil {
				b.Drift += math.Abs(share-l.last[i][e]) / 2 / n
			}
		}
		now = append(now, load)
	}
	l.last = now
	return b
}

func most(x []float64) (m float64) {
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// Agreement says how far two runs route the same tokens alike.
type Agreement struct {
	Choices float64 // share of choices that both make
	Tokens  float64 // share of tokens with the same set of experts
	First   float64 // share of tokens with the same best expert
	Weights float64 // mean absolute difference of the weights of the choices that both make
}

// Agree compares a layer of a step of two runs whose headers fit.
func Agree(h Header, layer int, a, b Step) (g Agreement) {
	ea, wa := a.Layer(h, layer)
	eb, wb := b.Layer(h, layer)
	common, tokens := 0, float64(h.Tokens())
	for at := 0; at < len(ea); at += h.TopK {
		same := 0
		for i := at; i < at+h.TopK; i++ {
			for j := at; j < at+h.TopK; j++ {
				if ea[i] == eb[j] {
					same++
					g.Weights += math.Abs(float64(wa[i]) - float64(wb[j]))
				}
			}
		}
		common += same
		if same == h.TopK {
			g.Tokens += 1 / tokens
		}
		if ea[at] == eb[at] {
			g.First += 1 / tokens
		}
	}
	g.Choices = float64(common) / float64(len(ea))
	g.Weights /= float64(max(common, 1))
	return g
}
