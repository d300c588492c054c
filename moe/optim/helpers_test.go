package optim

// What the tests share: models and loose parameters on any number of ranks, and their whole state
// by name, however it is sharded.

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/tensor"
)

// adamw has constants that all matter within a few steps.
func adamw() AdamW {
	return AdamW{Beta1: 0.8, Beta2: 0.9, Eps: 1e-3, WeightDecay: 0.1}
}

func bf16Moments() AdamW {
	c := adamw()
	c.Moments = tensor.BF16
	return c
}

// testRules are rules with state of either type, and with whole matrices.
var testRules = map[string]Rule{"adamw": adamw(), "bf16 moments": bf16Moments(), "muon": muon()}

// step makes a whole step.
func (o *Optimizer) step(t testing.TB, lr float64) float64 {
	t.Helper()
	norm, err := o.Step(lr)
	if err != nil {
		t.Error(err)
	}
	return norm
}

// tiny is a model of 12 experts, which 1, 2, 3, 4 and 6 ranks can share.
func tiny(t testing.TB) moe.Config {
	t.Helper()
	c, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	c.Vocab, c.Dim, c.Layers, c.DenseInter = 30, 20, 2, 24
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 2, 12, 6, 4, 10
	c.Experts, c.TopK, c.ExpertInter, c.MTPLayers = 12, 2, 14, 1
	return c
}

// rank is one rank of a test.
type rank struct {
	comm  *collective.Comm
	model *moe.Model // nil with loose parameters
	opt   *Optimizer
}

// onRanks runs body on n ranks, each with a model whose weights are zero.
func onRanks(t testing.TB, n int, dtype tensor.DType, rule Rule, body func(r *rank) error) {
	t.Helper()
	model := tiny(t)
	err := collective.NewWorld(n).Run(func(c *collective.Comm) error {
		exchange, err := ep.NewStandard(c, model.Experts)
		if err != nil {
			return err
		}
		m, err := moe.New(model, moe.Unquantized(dtype), 8, c, exchange)
		if err != nil {
			return err
		}
		return body(&rank{c, m, New(tensor.NewExec(), m.Groups, c, rule)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// group returns parameters of these lengths side by side in memory, and padding behind them. ranks
// hold them; nil: they are this rank's own experts.
func group(name string, ranks *collective.Comm, dtype tensor.DType, padding int, lengths ...int) *moe.Group {
	n := padding
	for _, l := range lengths {
		n += l
	}
	g := &moe.Group{Name: name, Ranks: ranks, Experts: ranks == nil, Work: tensor.New(dtype, n), Grad: tensor.New(tensor.FP32, n)}
	at := 0
	for i, l := range lengths {
		g.Params = append(g.Params, &moe.Param{
			Name: fmt.Sprintf("%s.%d", name, i), Dims: []int{l, 1}, Init: moe.Init{Kind: moe.Normal, Std: 1},
			Work: g.Work.Slice(at, at+l), Grad: g.Grad.Slice(at, at+l),
		})
		at += l
	}
	return g
}

// wholeState is every element of every parameter's optimizer state, gathered from the ranks and
// widened to FP32: by the vector's name and the parameter's.
type wholeState struct {
	mu      sync.Mutex
	vectors map[string]map[string][]float32
	work    map[string][]float32
	covered map[string][]int // how many ranks own an element
}

func newState() *wholeState {
	return &wholeState{vectors: map[string]map[string][]float32{}, work: map[string][]float32{}, covered: map[string][]int{}}
}

// widened returns the elements of a tensor in FP32.
func widened(t tensor.Tensor) []float32 {
	to := tensor.New(tensor.FP32, t.Len())
	tensor.Convert(nil, to.Mat(), t.Reshape(t.Len()).Mat())
	return to.F32()
}

// add copies what one rank owns. It is an error if replicated working weights differ between ranks.
func (s *wholeState) add(r *rank) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range r.opt.Pieces {
		name, n := p.Param.Name, p.Param.Len()
		for _, v := range p.State {
			if s.vectors[v.Name] == nil {
				s.vectors[v.Name] = map[string][]float32{}
			}
			if s.vectors[v.Name][name] == nil {
				s.vectors[v.Name][name] = make([]float32, n)
			}
			copy(s.vectors[v.Name][name][p.Offset:], widened(v.Data))
		}
		if s.covered[name] == nil {
			s.covered[name] = make([]int, n)
		}
		for i := range p.Master {
			s.covered[name][p.Offset+i]++
		}
	}
	for _, shard := range r.opt.shards {
		for _, p := range shard.group.Params {
			work := widened(p.Work)
			if before, ok := s.work[p.Name]; ok && !slices.Equal(before, work) {
				return fmt.Errorf("the working weights of %s differ between ranks", p.Name)
			}
			s.work[p.Name] = work
		}
	}
	return nil
}

// equals checks that two states are the same bit for bit.
func (s *wholeState) equals(t *testing.T, want *wholeState) {
	t.Helper()
	if len(s.vectors) != len(want.vectors) {
		t.Errorf("%d vectors, want %d", len(s.vectors), len(want.vectors))
	}
	for vector, params := range want.vectors {
		for name, w := range params {
			if !slices.Equal(s.vectors[vector][name], w) {
				t.Errorf("the %s of %s differs", vector, name)
			}
		}
	}
	if !maps.EqualFunc(s.work, want.work, slices.Equal) {
		t.Error("the working weights differ")
	}
}
