package pipe

// Text that a pipeline extends has the scores of one rank, bit for bit.

import (
	"slices"
	"testing"
	"time"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

// decoded returns the scores after a prompt, which is longer than a box, and after each of some
// more tokens. A rank that does not compute the text extends nothing.
func decoded(ex *tensor.Exec, d *moe.Decoder, tokens []int32, mine bool) (scores []float32, err error) {
	const prompt = 40
	var cache *moe.Cache
	var caches []*moe.Cache
	if mine {
		cache = d.NewCache(len(tokens))
		caches = append(caches, cache)
	} else {
		tokens = tokens[:0]
	}
	first, err := d.Extend(ex, cache, tokens[:min(prompt, len(tokens))])
	if err != nil {
		return nil, err
	}
	scores = slices.Clone(first)
	for i := prompt; i < prompt+3; i++ {
		row, err := d.Step(ex, caches, tokens[min(i, len(tokens)):min(i+1, len(tokens))])
		if err != nil {
			return nil, err
		}
		if row.Valid() && mine {
			scores = append(scores, row.F32()...)
		}
	}
	return scores, nil
}

func TestDecode(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		s := &setup{cfg: config(0), precision: moe.Unquantized(dtype)}
		tokens := newText(2, s.cfg.Vocab).inputs
		var want []float32
		err := collective.NewWorld(1).Run(func(c *collective.Comm) error {
			m, err := moe.New(s.cfg, s.precision, seq, c, nil)
			if err != nil {
				return err
			}
			ex := tensor.NewExec()
			if err := draw(ex, m); err != nil {
				return err
			}
			d, err := m.NewDecoder(ex, len(tokens))
			if err != nil {
				return err
			}
			want, err = decoded(ex, d, tokens, true)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"1F1B", "ZBVZeroBubble", "Interleaved1F1B"} {
			for _, dp := range []int{1, 2} {
				if s.schedule, err = pipeline.New(name, 2, 0, 4); err != nil {
					t.Fatal(err)
				}
				s.dp, s.ep = dp, dp
				if got := s.decode(t, tokens); !slices.Equal(got, want) {
					t.Errorf("%v, %s, dp %d: %d scores differ from %d", dtype, name, dp, len(got), len(want))
				}
			}
		}
	}
}

// decode returns the scores of the rank with the head that computes the text, in a pipeline.
func (s *setup) decode(t *testing.T, tokens []int32) (scores []float32) {
	plan, err := NewPlan(s.schedule, spread(s.cfg, s.schedule.Stages))
	if err != nil {
		t.Fatal(err)
	}
	ranks := len(s.schedule.Ranks) * s.dp
	w := collective.NewWorld(ranks)
	w.SetLimits(collective.Limits{Wait: time.Minute})
	all := make([][]float32, ranks)
	err = w.Run(func(c *collective.Comm) error {
		r, err := s.build(c, plan)
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		ex.Poison = true
		for _, m := range r.Models {
			if err := draw(ex, m); err != nil {
				return err
			}
		}
		d, err := r.NewDecoder(ex, len(tokens))
		if err != nil {
			return err
		}
		all[c.Rank()], err = decoded(ex, d, tokens, r.Mesh.World.Rank() == 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(all...)
}
