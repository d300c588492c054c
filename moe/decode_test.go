package moe

// Texts that are computed a few tokens at a time, against passes over all of them.
// decode_exact_test.go compares log-probabilities with those of training.

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// fullLogits returns the scores after each token of a text, from one pass over all of it.
func (m *member) fullLogits(text []int32) ([][]float32, error) {
	mark := m.ex.Mark()
	defer m.ex.Release(mark)
	logits, err := m.model.Logits(m.ex, text, max(len(text), 1))
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(text))
	for i := range rows {
		rows[i] = slices.Clone(logits.Index(i).F32())
	}
	return rows, nil
}

// inParts returns the scores at the end of each part of a text, whose parts end at ends.
func (m *member) inParts(d *Decoder, text []int32, ends ...int) ([][]float32, error) {
	c := d.NewCache(len(text))
	var rows [][]float32
	for _, end := range ends {
		logits, err := d.Extend(m.ex, c, text[c.Tokens():end])
		if err != nil {
			return nil, err
		}
		rows = append(rows, slices.Clone(logits))
	}
	return rows, nil
}

// decoder returns a decoder for the longest sequences.
func (m *member) decoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := m.model.NewDecoder(m.ex, m.model.Config.MaxPositions)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// All ways to cut a text into parts give the scores of a pass over all of it.
func TestExtendFollowsLogits(t *testing.T) {
	ways := [][]int{{13}, {1, 13}, {6, 7, 12, 13}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}
	models := map[string]Config{}
	for _, v := range variants() {
		models[v.String()] = v.config()
	}
	for name, edit := range sharingKeys {
		models[name] = with(tiny(), edit)
	}
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) {
			m := alone(t, cfg, tensor.FP32, 13)
			d, mark := m.decoder(t), m.ex.Mark()
			text, _ := text(3, 1, 13, m.model.Config.Vocab)
			want, err := m.fullLogits(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, ends := range ways {
				got, err := m.inParts(d, text, ends...)
				if err != nil {
					t.Fatal(err)
				}
				for i, end := range ends {
					if !slices.Equal(got[i], want[end-1]) {
						t.Errorf("cut at %v: scores after token %d are off by %.2g", ends, end, distance(got[i], want[end-1]))
					}
				}
			}
			if m.ex.Mark() != mark {
				t.Error("activations are left in the arena")
			}
		})
	}
}

// decodable is a model for decoding in any precision: its widths are whole blocks, and its products
// have few or many rows.
func decodable() Config {
	return with(tiny(), func(c *Config) {
		c.Dim, c.DenseInter, c.ExpertInter, c.QRank, c.KVRank, c.NopeDim, c.ValueDim = 64, 64, 32, 32, 64, 32, 32
		c.TopK, c.MaxPositions = 4, 256
	})
}

// quantizedMember builds this rank's part of a model in a precision.
func quantizedMember(c *collective.Comm, cfg Config, precision string, seq int) (*member, error) {
	p, err := PrecisionByName(precision)
	if err != nil {
		return nil, err
	}
	m, err := New(cfg, p, seq, c, nil)
	if err != nil {
		return nil, err
	}
	spread(m)
	ex := tensor.NewExec()
	for _, g := range m.Groups {
		g.Refresh(ex)
	}
	return &member{c, ex, m}, nil
}

// The bits of a sequence's scores depend neither on the other sequences of the batch nor on where
// they are computed.
func TestStepsAreSeparate(t *testing.T) {
	const sequences, prompt, steps = 26, 3, 3
	for _, name := range []string{"fp32", "bf16", "mxfp8", "mxint8", "bf16, grouped queries"} {
		t.Run(name, func(t *testing.T) {
			precision, queries, _ := strings.Cut(name, ",")
			cfg := decodable()
			if queries != "" {
				sharedKeys(&cfg)
			}
			tokens, _ := text(9, sequences, prompt+20, cfg.Vocab)
			of := func(i int) []int32 { return tokens[i*(prompt+20) : (i+1)*(prompt+20)] }
			length := func(i int) int { return prompt + i%5 } // of the part that comes before the steps
			// scores runs sequences of, dealt out to the ranks, and returns their scores after the
			// last step.
			scores := func(ranks int, which ...int) map[int][]float32 {
				all, mu := map[int][]float32{}, sync.Mutex{}
				err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
					m, err := quantizedMember(c, cfg, precision, 8)
					if err != nil {
						return err
					}
					d := m.decoder(t)
					var mine []int
					var caches []*Cache
					for n, i := range which {
						var cache *Cache
						var first []int32
						if n%ranks == c.Rank() {
							cache, first = d.NewCache(prompt+20), of(i)[:length(i)]
							mine, caches = append(mine, i), append(caches, cache)
						}
						if _, err := d.Extend(m.ex, cache, first); err != nil {
							return err
						}
					}
					for range steps {
						var next []int32
						for n, i := range mine {
							next = append(next, of(i)[caches[n].Tokens()])
						}
						logits, err := d.Step(m.ex, caches, next)
						if err != nil {
							return err
						}
						mu.Lock()
						for n, i := range mine {
							all[i] = slices.Clone(logits.Index(n).F32())
						}
						mu.Unlock()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			every := make([]int, sequences)
			for i := range every {
				every[i] = i
			}
			batch := map[int]map[int][]float32{}
			for _, ranks := range []int{1, 2, 4} {
				batch[ranks] = scores(ranks, every...)
			}
			for _, i := range []int{0, 11, 25} {
				alone := scores(1, i)[i]
				for ranks, got := range batch {
					if !slices.Equal(got[i], alone) {
						t.Errorf("sequence %d has other bits among %d on %d ranks, off by %.2g", i, sequences, ranks, distance(got[i], alone))
					}
				}
			}
			if slices.Equal(batch[1][0], batch[1][1]) {
				t.Error("two sequences have the same scores")
			}
		})
	}
}

// A real cache has the size that was computed for it.
func TestCacheBytes(t *testing.T) {
	m := alone(t, tiny(), tensor.BF16, 8)
	bytes := 0
	for _, l := range m.decoder(t).NewCache(5).layers {
		bytes += len(l.keys.Bytes()) + len(l.values.Bytes())
	}
	if want := 5 * 2 * int(m.model.Config.KVCache()); bytes != want {
		t.Errorf("a cache for 5 tokens has %d bytes, want %d", bytes, want)
	}
}

// A cache that was reset is as good as a new one.
func TestCacheReset(t *testing.T) {
	m := alone(t, tiny(), tensor.FP32, 8)
	d := m.decoder(t)
	text, _ := text(2, 2, 9, m.model.Config.Vocab)
	c := d.NewCache(9)
	var rows [][]float32
	for _, part := range [][]int32{text[:9], text[9:]} {
		c.Reset()
		logits, err := d.Extend(m.ex, c, part)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, slices.Clone(logits))
	}
	want, err := m.inParts(d, text[9:], 9)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows[1], want[0]) || slices.Equal(rows[0], rows[1]) {
		t.Error("what a cache had before it was reset is seen")
	}
}

func TestDecoderRefuses(t *testing.T) {
	m := alone(t, tiny(), tensor.FP32, 8)
	for _, context := range []int{0, 65} {
		_, err := m.model.NewDecoder(m.ex, context)
		contains(t, err, fmt.Sprintf("context is %d", context), "1 to 64 (model.max_positions)")
	}
	d, err := m.model.NewDecoder(m.ex, 10)
	if err != nil {
		t.Fatal(err)
	}
	for name, tokens := range map[string]struct{ capacity, n int }{"cache": {4, 5}, "context": {20, 11}, "nothing": {4, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: %d tokens in a cache for %d were taken", name, tokens.n, tokens.capacity)
				}
			}()
			d.Extend(m.ex, d.NewCache(tokens.capacity), make([]int32, tokens.n))
		}()
	}
}
