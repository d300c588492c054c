package moe

// Texts that are computed a few tokens at a time by fast decoders, against passes over all of them.
// Those of others are in decode_exact_test.go.

import (
	"fmt"
	"math"
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

// decoder returns a fast decoder for the longest sequences.
func (m *member) decoder(t testing.TB) *Decoder {
	t.Helper()
	d, err := m.model.NewDecoder(m.ex, m.model.Config.MaxPositions, true)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// In FP32 all ways to cut a text into parts give the scores of a pass over all of it but for
// rounding, and the same bits.
func TestExtendFollowsLogits(t *testing.T) {
	ways := [][]int{{13}, {1, 13}, {6, 7, 12, 13}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			m := alone(t, v.config(), tensor.FP32, 13)
			d, mark := m.decoder(t), m.ex.Mark()
			text, _ := text(3, 1, 13, m.model.Config.Vocab)
			want, err := m.fullLogits(text)
			if err != nil {
				t.Fatal(err)
			}
			first := map[int][]float32{}
			for _, ends := range ways {
				got, err := m.inParts(d, text, ends...)
				if err != nil {
					t.Fatal(err)
				}
				for i, end := range ends {
					if off := distance(got[i], want[end-1]); !(off <= 1e-5) {
						t.Errorf("cut at %v: scores after token %d are off by %.2g", ends, end, off)
					}
					if before, ok := first[end]; ok && !slices.Equal(got[i], before) {
						t.Errorf("cut at %v: scores after token %d have other bits", ends, end)
					}
					first[end] = got[i]
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

// rounded gives FP32 weights the values that they have in BF16.
func (m *member) rounded() *member {
	for _, p := range m.model.Params() {
		if len(p.Dims) == 2 && p.Work.DType() == tensor.FP32 {
			for i, v := range p.Work.F32() {
				p.Work.F32()[i] = tensor.ToBFloat16(v).Float32()
			}
		}
	}
	return m
}

// In BF16 the absorbed form rounds W_kᵀ·q and Σ p·c where the ordinary one rounds k and v: it is as
// close to exact arithmetic as that is, and so is what they differ by.
func TestExtendInBF16(t *testing.T) {
	cfg := with(decodable(), func(c *Config) { c.TopK = c.Experts }) // no choice that rounding could change
	exact, bf16 := alone(t, cfg, tensor.FP32, 100), alone(t, cfg, tensor.BF16, 100)
	for i, b := range exact.rounded().model.blocks {
		if b.router != nil { // whose weights are FP32 in both
			copy(bf16.model.blocks[i].router.gate.W.F32(), b.router.gate.W.F32())
		}
	}
	d := bf16.decoder(t)
	var full, absorbed, between float64
	for seed := range uint64(4) {
		text, _ := text(seed, 1, 100, cfg.Vocab)
		want, err := exact.fullLogits(text)
		if err != nil {
			t.Fatal(err)
		}
		ordinary, err := bf16.fullLogits(text)
		if err != nil {
			t.Fatal(err)
		}
		ends := []int{50, 51, 52, 60, 100}
		got, err := bf16.inParts(d, text, ends...)
		if err != nil {
			t.Fatal(err)
		}
		for i, end := range ends {
			full = max(full, distance(ordinary[end-1], want[end-1]))
			absorbed = max(absorbed, distance(got[i], want[end-1]))
			between = max(between, distance(got[i], ordinary[end-1]))
		}
	}
	t.Logf("off by %.2g absorbed and %.2g as a whole, by %.2g from each other", absorbed, full, between)
	if !(absorbed <= 1.5*full) || !(between <= 1.5*full) || full == 0 {
		t.Errorf("off by %.2g absorbed, %.2g as a whole, by %.2g from each other", absorbed, full, between)
	}
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

// Quantized recipes see the latents that their training pass multiplies: what is left is the
// difference of BF16.
func TestExtendQuantized(t *testing.T) {
	latent := with(decodable(), func(c *Config) { c.TopK = c.Experts })
	test := func(t *testing.T, cfg Config, p Precision) {
		t.Run(p.Name, func(t *testing.T) {
			m, err := quantizedMember(collective.NewWorld(1).Comm(0), cfg, p.Name, 60)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := text(5, 1, 60, cfg.Vocab)
			want, err := m.fullLogits(text)
			if err != nil {
				t.Fatal(err)
			}
			ends := []int{40, 41, 42, 43, 60}
			got, err := m.inParts(m.decoder(t), text, ends...)
			if err != nil {
				t.Fatal(err)
			}
			var worst float64
			for i, end := range ends {
				worst = max(worst, distance(got[i], want[end-1]))
			}
			bound := quantizedBounds[p.Name]
			if t.Logf("off by %.2g", worst); !(worst <= bound) {
				t.Errorf("off by %.2g, at most %.2g expected", worst, bound)
			}
		})
	}
	for _, p := range Precisions() {
		test(t, latent, p)
		test(t, with(latent, sharedKeys), p)
	}
}

// quantizedBounds is how far scores may be from those of a pass over all of a text. A difference of
// BF16 may carry an activation over to the next code, which is a sixteenth away in E4M3.
var quantizedBounds = map[string]float64{
	"fp32": 1e-5, "bf16": 0.02, "mxfp8": 0.06, "mxfp8-experts": 0.04, "mxfp8-wgrad-bf16": 0.06, "mxint8": 0.03,
	"nvfp4": 0.3, "fp8-block": 0.08, "fp8-tensor": 0.08, "mxfp4": 0.02, "mxfp4-mxfp8": 0.06, "mxfp4-e2m1": 0.3, "mxfp6-e2m3": 0.1, "mxfp6-e3m2": 0.15,
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

// argmax returns the place of the largest score and how far the next one is below it.
func argmax(scores []float32) (at int, gap float64) {
	second := math.Inf(-1)
	for i, v := range scores {
		if v > scores[at] {
			at = i
		}
	}
	for i, v := range scores {
		if i != at {
			second = max(second, float64(v))
		}
	}
	return at, float64(scores[at]) - second
}

// Greedy texts of 200 tokens are those of full recomputation. In BF16 they may part where the two
// best scores are closer than the two computations.
func TestGreedy(t *testing.T) {
	const length = 210
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		t.Run(dtype.String(), func(t *testing.T) {
			cfg := decodable()
			m := alone(t, cfg, dtype, length)
			d := m.decoder(t)
			text, _ := text(21, 1, 7, cfg.Vocab)
			cache := d.NewCache(length)
			logits, err := d.Extend(m.ex, cache, text)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[int]bool{}
			for len(text) < length {
				got, _ := argmax(logits)
				full, err := m.fullLogits(text)
				if err != nil {
					t.Fatal(err)
				}
				scores := full[len(text)-1]
				if want, gap := argmax(scores); got != want {
					if dtype == tensor.FP32 {
						t.Fatalf("token %d is %d, by full recomputation %d", len(text), got, want)
					}
					var most float64
					for i, v := range scores {
						most = max(most, math.Abs(float64(v-logits[i])))
					}
					if gap > 2*most {
						t.Fatalf("token %d is %d, by full recomputation %d, which is better by %.2g; scores are off by %.2g", len(text), got, want, gap, most)
					}
				}
				seen[got] = true
				text = append(text, int32(got))
				step, err := d.Step(m.ex, []*Cache{cache}, text[len(text)-1:])
				if err != nil {
					t.Fatal(err)
				}
				logits = step.F32()
			}
			if len(seen) < 3 {
				t.Errorf("a text of %d tokens only", len(seen))
			}
		})
	}
}

// A cache of DeepSeek-V3 takes 70 KB per token, as published (arXiv:2505.09343, table 1). A real
// cache has the size that was computed for it.
func TestCacheBytes(t *testing.T) {
	for name, want := range map[string]int{"671B": 70272, "236B": 69120, "16B": 31104} {
		cfg, err := FlavorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if compressed, _ := cfg.KVCache(); 2*int(compressed) != want {
			t.Errorf("%s: %d bytes per token, want %d", name, 2*compressed, want)
		}
	}
	m := alone(t, tiny(), tensor.BF16, 8)
	compressed, expanded := m.model.Config.KVCache()
	for fast, elements := range map[bool]int64{false: expanded, true: compressed} {
		d, err := m.model.NewDecoder(m.ex, 8, fast)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, l := range d.NewCache(5).layers {
			for _, part := range []tensor.Tensor{l.keys, l.values, l.rows} {
				if part.Valid() {
					bytes += len(part.Bytes())
				}
			}
		}
		if want := 5 * 2 * int(elements); bytes != want {
			t.Errorf("fast %t: a cache for 5 tokens has %d bytes, want %d", fast, bytes, want)
		}
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
		_, err := m.model.NewDecoder(m.ex, context, true)
		contains(t, err, fmt.Sprintf("context is %d", context), "1 to 64 (model.max_positions)")
	}
	d, err := m.model.NewDecoder(m.ex, 10, true)
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
