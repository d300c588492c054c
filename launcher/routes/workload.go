package routes

// Synthetic routes: the imbalance scenarios W0 to W7 of Megatron-LM's benchmark of token imbalance
// (github.com/NVIDIA/Megatron-LM/pull/7488), by its descriptions of what each isolates. The numbers
// are our own: hot experts are as likely as 8 others.

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// workloads are the scenarios, each with what it isolates. Rank r holds experts [r·E/n, (r+1)·E/n).
var workloads = []struct{ name, isolates string }{
	{"W0_balanced", "experts in turn"},
	{"W1_hot_expert_set", "E/n hot experts, drawn by the seed"},
	{"W2_hot_rank", "all experts of one rank are hot"},
	{"W3_spread_hot_experts", "the same number of hot experts, spread evenly over the ranks"},
	{"W4_source_ragged", "experts in turn, but rank r has r+1 parts of the tokens"},
	{"W5_zero_expert_rank", "experts in turn, without those of the last rank"},
	{"W6_rotating_hotspot", "W2, on another rank in every step"},
	{"W7_burst", "W0, but every eighth step is W2"},
}

const (
	hot         = 8 // how much likelier a hot expert is
	burstPeriod = 8
)

// Workloads lists the scenarios, one per line.
func Workloads() string {
	var b strings.Builder
	for _, w := range workloads {
		fmt.Fprintf(&b, "%s: %s\n", w.name, w.isolates)
	}
	return b.String()
}

// Workload makes the routes of a scenario. It is a [Source].
type Workload struct {
	header       Header
	number, step int
	steps        int
}

// NewWorkload returns a scenario, such as W2 or W2_hot_rank, of some steps. h has experts, topK,
// tokens, ranks, the seed and the size of rows.
func NewWorkload(name string, h Header, steps int) (*Workload, error) {
	h.Format, h.Flavor, h.Precision, h.Layers, h.EP = format, name, "none", []int{0}, h.Ranks
	if err := h.check(); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(workloads, func(w struct{ name, isolates string }) bool {
		return strings.EqualFold(w.name, name) || strings.EqualFold(w.name[:2], name)
	})
	switch {
	case i < 0:
		return nil, fmt.Errorf("no workload %q: use one of these\n%s", name, Workloads())
	case i == 5 && h.TopK > h.Experts-h.Experts/h.Ranks:
		return nil, fmt.Errorf("%s leaves %d experts, too few for top %d: give more ranks", workloads[i].name, h.Experts-h.Experts/h.Ranks, h.TopK)
	}
	h.Flavor = workloads[i].name
	return &Workload{header: h, number: i, steps: steps}, nil
}

// Describe implements [Source].
func (w *Workload) Describe() Header { return w.header }

// Rank implements [Source].
func (w *Workload) Rank(token int) int {
	n := w.header.Ranks
	if w.number != 4 {
		return token * n / w.header.Tokens()
	}
	// Ranks 0 to r have (r+1)(r+2)/2 of n(n+1)/2 parts.
	part := token * n * (n + 1) / 2 / w.header.Tokens()
	return int((math.Sqrt(float64(8*part+1)) - 1) / 2)
}

// Next implements [Source].
func (w *Workload) Next() (Step, error) {
	if w.step == w.steps {
		return Step{}, io.EOF
	}
	w.step++
	h, s := w.header, Step{Step: w.step}
	usable, likely := h.Experts, w.likely(w.step)
	if w.number == 5 {
		usable -= h.Experts / h.Ranks
	}
	rng := rand.New(rand.NewPCG(h.Seed, uint64(w.step)))
	for token := range h.Tokens() {
		if likely == nil {
			for k := range h.TopK {
				s.Experts = append(s.Experts, int32((token*h.TopK+k)%usable))
			}
		} else {
			s.Experts = append(s.Experts, draw(rng, likely, h.TopK)...)
		}
	}
	s.Weights = slices.Repeat([]float32{1 / float32(h.TopK)}, len(s.Experts))
	return s, nil
}

// likely returns how likely each expert is; nil: experts take turns.
func (w *Workload) likely(step int) []float64 {
	h := w.header
	each := h.Experts / h.Ranks
	all := slices.Repeat([]float64{1}, h.Experts)
	heatRank := func(r int) {
		for e := range each {
			all[r*each+e] = hot
		}
	}
	switch {
	case w.number == 1:
		for _, e := range rand.New(rand.NewPCG(h.Seed, 0)).Perm(h.Experts)[:each] {
			all[e] = hot
		}
	case w.number == 2:
		heatRank(0)
	case w.number == 3:
		for i := range each {
			all[i*h.Ranks] = hot
		}
	case w.number == 6:
		heatRank(step % h.Ranks)
	case w.number == 7 && step%burstPeriod == 0:
		heatRank(0)
	default:
		return nil
	}
	return all
}

// draw draws k different experts, one after the other: those with the largest u^(1/weight), for u
// uniform in (0, 1) (Efraimidis and Spirakis, 2006).
func draw(rng *rand.Rand, likely []float64, k int) []int32 {
	keys, order := make([]float64, len(likely)), make([]int32, len(likely))
	for e, weight := range likely {
		keys[e], order[e] = rng.ExpFloat64()/weight, int32(e)
	}
	slices.SortFunc(order, func(a, b int32) int {
		if keys[a] < keys[b] {
			return -1
		}
		return 1
	})
	return order[:k]
}
