package moe

// What the tests share: tiny models whose every path matters, the global batches they read, and
// their runs on any number of ranks.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// tiny is a model of two layers and 8 experts, small enough for finite differences.
func tiny() Config {
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = 32, 16, 2, 1, 24
	c.Heads, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 2, 12, 6, 4, 8
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = 8, 2, 12, 1
	c.RouteScale, c.MaxPositions = 1.5, 64
	return c
}

// with returns cfg after the changes of edit.
func with(cfg Config, edits ...func(c *Config)) Config {
	for _, edit := range edits {
		edit(&cfg)
	}
	return cfg
}

// grouped limits a config to two of four expert groups.
func grouped(c *Config) { c.Groups, c.TopKGroups = 4, 2 }

// choosing makes queries choose 9 keys, by indexers that train. A third layer shares the choice of
// the second one.
func choosing(c *Config) {
	c.Layers, c.IndexerTypes, c.IndexRope, c.QRank = 3, "FFS", interleavedPairs, max(c.QRank, 10)
	c.IndexHeads, c.IndexDim, c.IndexTopK, c.IndexWeight = 3, max(8, c.RopeDim), 9, 0.7
}

// stretched turns YaRN on, with factors that reach both the tables and the softmax scale.
func stretched(c *Config) {
	c.YaRN = YaRN{Factor: 4, OriginalPositions: 16, BetaFast: 4, BetaSlow: 1, MScale: 0.707, MScaleAllDim: 1}
}

// member is one rank of a test.
type member struct {
	comm  *collective.Comm
	ex    *tensor.Exec
	model *Model
}

// newMember builds this rank's part of a model, its weights set by spread.
func newMember(c *collective.Comm, cfg Config, dtype tensor.DType, seq int) (*member, error) {
	m, err := New(cfg, Unquantized(dtype), seq, c, nil)
	if err != nil {
		return nil, err
	}
	spread(m)
	return &member{c, tensor.NewExec(), m}, nil
}

// alone builds a model of one rank.
func alone(t testing.TB, cfg Config, dtype tensor.DType, seq int) *member {
	t.Helper()
	m, err := newMember(collective.NewWorld(1).Comm(0), cfg, dtype, seq)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// onRanks runs body on every one of n ranks.
func onRanks(t testing.TB, n int, cfg Config, dtype tensor.DType, seq int, body func(m *member) error) {
	t.Helper()
	err := collective.NewWorld(n).Run(func(c *collective.Comm) error {
		m, err := newMember(c, cfg, dtype, seq)
		if err != nil {
			return err
		}
		return body(m)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// spread sets weights and selection biases, the same for any number of ranks, so large that every
// part of the model has a say: with training's initial values most gradients are close to nothing.
func spread(m *Model) {
	for p := range m.firstParams {
		init, shift := Init{Kind: Normal, Std: 0.2}, float32(1)
		if p.Init.Kind == Normal {
			init, shift = p.Init, 0 // the embedding: large already
		} else if len(p.Dims) == 2 {
			init.Std, shift = 1/math.Sqrt(float64(p.Dims[1])), 0
		}
		values := (&Param{Name: p.Name, Init: init}).draw(p.Len(), 7)
		for i := range values {
			values[i] += shift
		}
		set(p, values)
	}
	if m.host != nil {
		if err := m.host.comm.Barrier(); err != nil { // the first ranks' weights are ready
			panic(err)
		}
	}
	for _, r := range m.Routings() {
		if r.IsTable() { // of every other token, an expert that is there twice
			for token := 0; token < r.Bias.Dim(0); token += 2 {
				row := r.Bias.Index(token).F32()
				row[1] = row[0]
			}
			continue
		}
		for e := range r.Bias.F32() {
			r.Bias.F32()[e] = 0.1 * float32(math.Sin(float64(7*e+r.Layer)))
		}
	}
}

// firstParams yields the parameters that no earlier rank holds in the same memory.
func (m *Model) firstParams(yield func(*Param) bool) {
	for _, g := range m.Groups {
		for _, p := range g.Params {
			if g.host.first() && !yield(p) {
				return
			}
		}
	}
}

// shared reports whether the ranks hold one copy of a parameter.
func (m *Model) shared(name string) bool {
	for _, g := range m.Groups {
		if g.Shared && slices.ContainsFunc(g.Params, func(p *Param) bool { return p.Name == name }) {
			return true
		}
	}
	return false
}

func (m *member) shared(name string) bool { return m.model.shared(name) }

// drawnValues holds what draw has drawn, because drawing takes longer than most steps.
var drawnValues sync.Map

// drawKey tells the values of drawnValues apart.
type drawKey struct {
	name string
	init Init
	n    int
	seed uint64
}

// draw returns the first n initial values.
func (p *Param) draw(n int, seed uint64) []float32 {
	key := drawKey{p.Name, p.Init, n, seed}
	values, ok := drawnValues.Load(key)
	if !ok {
		drawn := make([]float32, n)
		p.Fill(drawn, 0, seed)
		values, _ = drawnValues.LoadOrStore(key, drawn)
	}
	return slices.Clone(values.([]float32))
}

// set rounds values into the working weights.
func set(p *Param, values []float32) {
	flat := tensor.New(tensor.FP32, len(values))
	copy(flat.F32(), values)
	tensor.Convert(nil, p.Work.Reshape(len(values)).Mat(), flat.Mat())
}

// text returns sequences sequences of seq random tokens, and the token after each.
func text(seed uint64, sequences, seq, vocab int) (inputs, targets []int32) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range sequences {
		row := make([]int32, seq+1)
		for i := range row {
			row[i] = int32(rng.IntN(vocab))
		}
		inputs, targets = append(inputs, row[:seq]...), append(targets, row[1:]...)
	}
	return inputs, targets
}

// batchOf returns a batch of all the sequences of text.
func batchOf(seed uint64, sequences, seq, vocab int) Batch {
	inputs, targets := text(seed, sequences, seq, vocab)
	return Batch{Inputs: inputs, Targets: targets, Seq: seq, GlobalSequences: sequences}
}

// packed returns where each token sees from, in sequences of documents that begin at other places
// in each.
func packed(sequences, seq int) []int32 {
	var first []int32
	for s := range sequences {
		from := 0
		for i := range seq {
			if (i+s)%3 == 2 {
				from = i
			}
			first = append(first, int32(from))
		}
	}
	return first
}

// part returns sequences [lo, hi) of b, which still averages over all of them.
func (b Batch) part(lo, hi int) Batch {
	b.Inputs, b.Targets = b.Inputs[lo*b.Seq:hi*b.Seq], b.Targets[lo*b.Seq:hi*b.Seq]
	if b.First != nil {
		b.First = b.First[lo*b.Seq : hi*b.Seq]
	}
	return b
}

// gradients copies all gradients of a rank.
func (m *member) gradients() map[string][]float32 {
	all := map[string][]float32{}
	for _, p := range m.model.Params() {
		all[p.Name] = slices.Clone(p.Grad.F32())
	}
	return all
}

// l2 returns the length of x.
func l2(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// distance returns |x - y| / |y|, or |x| where y is zero.
func distance(x, y []float32) float64 {
	if len(x) != len(y) {
		panic(fmt.Sprintf("%d elements against %d", len(x), len(y)))
	}
	diff := make([]float32, len(x))
	for i := range x {
		diff[i] = x[i] - y[i]
	}
	if n := l2(y); n > 0 {
		return l2(diff) / n
	}
	return l2(diff)
}

// objective returns what Train's gradients are those of, from the loss of a whole batch.
func (l Loss) objective(cfg Config) float64 {
	return l.Sum/float64(l.Tokens) + cfg.MTPWeight*l.Ahead/float64(max(l.AheadTokens, 1)) + l.Balance + cfg.IndexWeight*l.Index
}
