package optim

// What the tests share: models and loose parameters on any number of ranks, and their whole state
// by name, however it is sharded.

import (
	"fmt"
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

// onRanks runs body on n ranks with a model each, its weights zero.
func onRanks(t testing.TB, n int, dtype tensor.DType, cfg AdamW, body func(r *rank) error) {
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
		return body(&rank{c, m, New(tensor.NewExec(), m.Groups, c, cfg)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// group returns parameters of these lengths side by side in memory, and padding behind them.
func group(name string, local bool, dtype tensor.DType, padding int, lengths ...int) *moe.Group {
	n := padding
	for _, l := range lengths {
		n += l
	}
	g := &moe.Group{Name: name, Local: local, Work: tensor.New(dtype, n), Grad: tensor.New(tensor.FP32, n)}
	at := 0
	for i, l := range lengths {
		g.Params = append(g.Params, &moe.Param{
			Name: fmt.Sprintf("%s.%d", name, i), Dims: []int{l}, Init: moe.Init{Kind: moe.Normal, Std: 1},
			Work: g.Work.Slice(at, at+l), Grad: g.Grad.Slice(at, at+l),
		})
		at += l
	}
	return g
}

// state is every element of every parameter's optimizer state, gathered from the ranks.
type state struct {
	mu                       sync.Mutex
	master, expAvg, expAvgSq map[string][]float32
	work                     map[string][]float32 // widened to FP32
	covered                  map[string][]int     // how many ranks own an element
}

func newState() *state {
	return &state{
		master: map[string][]float32{}, expAvg: map[string][]float32{}, expAvgSq: map[string][]float32{},
		work: map[string][]float32{}, covered: map[string][]int{},
	}
}

// add copies what one rank owns. It is an error if replicated working weights differ between ranks.
func (s *state) add(r *rank) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range r.opt.Pieces {
		name, n := p.Param.Name, p.Param.Len()
		if s.master[name] == nil {
			s.master[name], s.expAvg[name], s.expAvgSq[name] = make([]float32, n), make([]float32, n), make([]float32, n)
			s.covered[name] = make([]int, n)
		}
		copy(s.master[name][p.Offset:], p.Master)
		copy(s.expAvg[name][p.Offset:], p.ExpAvg)
		copy(s.expAvgSq[name][p.Offset:], p.ExpAvgSq)
		for i := range p.Master {
			s.covered[name][p.Offset+i]++
		}
	}
	for _, shard := range r.opt.shards {
		for _, p := range shard.group.Params {
			work := tensor.New(tensor.FP32, p.Len())
			tensor.Convert(nil, work.Mat(), p.Work.Reshape(p.Len()).Mat())
			if before, ok := s.work[p.Name]; ok && !slices.Equal(before, work.F32()) {
				return fmt.Errorf("the working weights of %s differ between ranks", p.Name)
			}
			s.work[p.Name] = work.F32()
		}
	}
	return nil
}

// equals checks that two states are the same bit for bit.
func (s *state) equals(t *testing.T, want *state) {
	t.Helper()
	for _, part := range []struct {
		name      string
		got, want map[string][]float32
	}{
		{"master weight", s.master, want.master}, {"first moment", s.expAvg, want.expAvg},
		{"second moment", s.expAvgSq, want.expAvgSq}, {"working weight", s.work, want.work},
	} {
		if len(part.got) != len(part.want) {
			t.Errorf("%ss of %d parameters, want %d", part.name, len(part.got), len(part.want))
		}
		for name, w := range part.want {
			if !slices.Equal(part.got[name], w) {
				t.Errorf("the %s of %s differs", part.name, name)
			}
		}
	}
}
