package moe

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor"
)

// After QK-clip, the heads of the first layer whose largest score exceeded the limit have the limit
// for the same tokens, and the others have the score that they had. Weights are those of Kimi K2
// (arXiv:2507.20534, algorithm 1) with g = limit/score: queries and keys without rotation times √g,
// rotated queries times g, the rotated key, which heads share, and values as they were.
func TestQKClip(t *testing.T) {
	const seq = 8
	for name, edit := range map[string]func(*Config){
		"queries":            func(*Config) {},
		"compressed queries": func(c *Config) { c.QRank = 8 },
		"YaRN":               stretched,
	} {
		cfg := with(tiny(), edit)
		m := alone(t, cfg, tensor.FP32, seq)
		m.model.RecordScores()
		before := m.topScores(t, batchOf(5, 4, seq, cfg.Vocab))
		first := before[:cfg.Heads]
		limit := (slices.Min(first) + slices.Max(first)) / 2
		if !(slices.Min(first) > 0) || slices.Min(first) == slices.Max(first) {
			t.Fatalf("%s: scores %v are no test", name, first)
		}
		for h, want := range m.scoresOfFirstLayer(t, batchOf(5, 4, seq, cfg.Vocab)) {
			if math.Abs(float64(first[h])/want-1) > 1e-5 {
				t.Errorf("%s: the largest score of head %d is %g, want %g", name, h, first[h], want)
			}
		}
		query, key := []float64{}, []float64{} // factors of rows, by layer and head
		for _, score := range before {
			g := min(float64(limit)/float64(score), 1)
			query = append(query, repeat(math.Sqrt(g), cfg.NopeDim)...)
			query = append(query, repeat(g, cfg.RopeDim)...)
			key = append(key, repeat(math.Sqrt(g), cfg.NopeDim)...)
			key = append(key, repeat(1, cfg.ValueDim)...)
		}
		for _, p := range m.model.Params() {
			old := slices.Clone(p.Work.F32())
			p.Heads.Clip(float64(limit), p.Work.F32())
			var layer int
			var factors []float64
			if n, _ := fmt.Sscanf(p.Name, "model.layers.%d.", &layer); n == 1 {
				switch {
				case strings.HasSuffix(p.Name, "q_proj.weight"), strings.HasSuffix(p.Name, "q_b_proj.weight"):
					factors = query[layer*cfg.Heads*cfg.KeyDim():]
				case strings.HasSuffix(p.Name, "kv_b_proj.weight"):
					factors = key[layer*cfg.Heads*(cfg.NopeDim+cfg.ValueDim):]
				}
			}
			for i, w := range p.Work.F32() {
				want := float64(old[i])
				if factors != nil {
					want *= factors[i/p.Dims[1]]
				}
				if math.Abs(float64(w)-want) > 1e-6*math.Abs(want) {
					t.Fatalf("%s: element %d of %s, %g, becomes %g, want %g", name, i, p.Name, old[i], w, want)
				}
			}
		}
		for h, got := range m.topScores(t, batchOf(5, 4, seq, cfg.Vocab))[:cfg.Heads] {
			if want := min(first[h], limit); math.Abs(float64(got/want-1)) > 1e-5 {
				t.Errorf("%s: head %d has score %g after QK-clip at %g, had %g", name, h, got, limit, first[h])
			}
		}
	}
}

// scoresOfFirstLayer returns the largest causal score of each head of the first layer.
func (m *member) scoresOfFirstLayer(t *testing.T, b Batch) []float64 {
	t.Helper()
	pass, err := m.model.Forward(m.ex, b)
	if err != nil {
		t.Fatal(err)
	}
	s, cfg := pass.blocks[0].attention.(*latentState), m.model.Config
	most, width := repeat(math.Inf(-1), cfg.Heads), cfg.KeyDim()
	for i := range b.Inputs {
		for j := i / b.Seq * b.Seq; j <= i; j++ {
			for h := range most {
				score := 0.0
				for c := h * width; c < (h+1)*width; c++ {
					score += float64(s.q.Index(i).F32()[c]) * float64(s.k.Index(j).F32()[c])
				}
				most[h] = max(most[h], score*float64(cfg.softmaxScale()))
			}
		}
	}
	return most
}

func repeat(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

// Scores are those of all passes since ZeroGrad and of all ranks: the same bits for any number of
// ranks and of passes, with recomputation and without. Evaluation adds none.
func TestTopScoresOnAnyRanks(t *testing.T) {
	const seq = 8
	cfg := with(tiny(), func(c *Config) { c.MTPLayers = 1 })
	b := batchOf(5, 4, seq, cfg.Vocab)
	var want []float32
	for _, ranks := range []int{1, 2, 4} {
		for _, recompute := range []Recompute{RecomputeNone, RecomputeFull} {
			onRanks(t, ranks, cfg, tensor.BF16, seq, func(m *member) error {
				m.model.RecordScores()
				m.model.Recompute = recompute
				share := 4 / ranks
				part := b.part(m.comm.Rank()*share, (m.comm.Rank()+1)*share)
				got := m.topScores(t, part)
				if _, err := m.model.Eval(m.ex, batchOf(6, 4, seq, cfg.Vocab)); err != nil {
					return err
				}
				if m.comm.Rank() == 0 && want == nil {
					want = got
				}
				if len(want) != cfg.Heads*(cfg.Layers+1) || !slices.Equal(got, want) || !slices.Equal(m.model.Groups[1].scores, want) {
					return fmt.Errorf("np %d, %v: scores %v, want %v", ranks, recompute, got, want)
				}
				return nil
			})
		}
	}
}

// topScores returns a copy of the scores of a step with a batch, in passes of one sequence, after
// one with other tokens.
func (m *member) topScores(t *testing.T, b Batch) []float32 {
	t.Helper()
	other := batchOf(9, 4, b.Seq, m.model.Config.Vocab)
	for _, batch := range []Batch{other, b} {
		for _, g := range m.model.Groups {
			g.ZeroGrad()
		}
		for at := range len(batch.Inputs) / batch.Seq {
			pass := batch.part(at, at+1)
			pass.More = at+1 < len(batch.Inputs)/batch.Seq
			if _, err := m.model.Train(m.ex, pass); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, g := range m.model.Groups {
		if err := g.ShareScores(); err != nil {
			t.Fatal(err)
		}
	}
	return slices.Clone(m.model.Groups[1].scores)
}
