package moe

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"spmoe/tensor"
)

// After QK-clip, the heads of the first layer whose largest score exceeded the limit have the limit
// for the same tokens, and the others have the score that they had. Values stay.
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
		first := m.topScores(t, batchOf(5, 4, seq, cfg.Vocab))[:cfg.Heads]
		limit := (slices.Min(first) + slices.Max(first)) / 2
		if !(slices.Min(first) > 0) || slices.Min(first) == slices.Max(first) {
			t.Fatalf("%s: scores %v are no test", name, first)
		}
		for _, p := range m.model.Params() {
			before := slices.Clone(p.Work.F32())
			p.Heads.Clip(float64(limit), p.Work.F32())
			if p.Heads == &m.model.blocks[0].attention.keyRows {
				head, values := cfg.KVRank*(cfg.NopeDim+cfg.ValueDim), cfg.KVRank*cfg.NopeDim
				for at := 0; at < len(before); at += head {
					if !slices.Equal(p.Work.F32()[at+values:at+head], before[at+values:at+head]) {
						t.Errorf("%s: values of head %d have changed", name, at/head)
					}
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
				got := slices.Clone(m.topScores(t, part))
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

// topScores returns the scores of a step with a batch, in passes of one sequence, after one with
// other tokens.
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
	return m.model.Groups[1].scores
}
