package moe

// Generation with the bits of training.

import (
	"math/rand/v2"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// longText is longer than a block of keys.
const longText = 560

// onLayout runs body on ranks whose groups of ep ranks hold all experts.
func onLayout(t *testing.T, cfg Config, precision string, ranks, ep, seq int, body func(m *member) error) {
	t.Helper()
	p, err := PrecisionByName(precision)
	if err != nil {
		t.Fatal(err)
	}
	err = collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		on, err := NewMesh(c, mesh.Layout{World: ranks, PP: 1, DPReplicate: ranks / ep, DPShard: ep, EP: ep})
		if err != nil {
			return err
		}
		model, err := NewStage(on, cfg, p, seq, nil, cfg.Whole())
		if err != nil {
			return err
		}
		spread(model)
		if model.host != nil {
			if err := model.host.comm.Barrier(); err != nil {
				return err
			}
		}
		m := &member{c, tensor.NewExec(), model}
		for _, g := range model.Groups {
			g.Refresh(m.ex)
		}
		return body(m)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// trainedLogProbs returns the log-probability of each token of texts except the first, from the
// forward pass of a training step in which each rank has an equal share of the texts, padded.
func trainedLogProbs(t *testing.T, cfg Config, precision string, ranks, ep int, texts [][]int32) [][]float64 {
	t.Helper()
	all := make([][]float64, len(texts))
	onLayout(t, cfg, precision, ranks, ep, longText, func(m *member) error {
		n := len(texts) / ranks
		b := Batch{Seq: longText, GlobalSequences: len(texts), LogProbs: make([]float64, n*longText)}
		for _, text := range texts[m.comm.Rank()*n : (m.comm.Rank()+1)*n] {
			inputs, targets := make([]int32, longText), make([]int32, longText)
			copy(inputs, text[:len(text)-1])
			copy(targets, text[1:])
			b.Inputs, b.Targets = append(b.Inputs, inputs...), append(b.Targets, targets...)
		}
		if _, err := m.model.Forward(m.ex, b); err != nil {
			return err
		}
		for i := range n {
			text := m.comm.Rank()*n + i
			all[text] = b.LogProbs[i*longText:][:len(texts[text])-1]
		}
		return nil
	})
	return all
}

// place is a place in one of some texts.
type place struct{ text, token int }

// decodedLogProbs returns log-probabilities of the tokens at some places. Texts are dealt to the
// ranks by chance. Each begins with parts of any lengths, and goes on by steps together with
// others.
func decodedLogProbs(t *testing.T, cfg Config, precision string, ranks int, seed uint64, texts [][]int32) map[place]float64 {
	t.Helper()
	var mu sync.Mutex
	all := map[place]float64{}
	onLayout(t, cfg, precision, ranks, ranks, 8, func(m *member) error {
		rng := rand.New(rand.NewPCG(seed, 3)) // the same on all ranks
		d, err := m.model.NewDecoder(m.ex, longText)
		if err != nil {
			return err
		}
		caches, known := make([]*Cache, len(texts)), make([]int, len(texts))
		note := func(which ...int) {
			next, probs := make([]int32, len(which)), make([]float64, len(which))
			for i, text := range which {
				next[i] = texts[text][known[text]]
			}
			d.LogProbs(m.ex, probs, next)
			mu.Lock()
			defer mu.Unlock()
			for i, text := range which {
				all[place{text, known[text]}] = probs[i]
			}
		}
		for text, tokens := range texts {
			if rng.IntN(ranks) == m.comm.Rank() {
				caches[text] = d.NewCache(len(tokens))
			}
			for parts := 1 + rng.IntN(4); parts > 0; parts-- {
				rest := len(tokens) - 1 - known[text]
				if rest == 0 {
					break
				}
				n := 1 + rng.IntN(rest)
				var part []int32
				if caches[text] != nil {
					part = tokens[known[text] : known[text]+n]
				}
				if _, err := d.Extend(m.ex, caches[text], part); err != nil {
					return err
				}
				if known[text] += n; caches[text] != nil {
					note(text)
				}
			}
		}
		for range 6 {
			var which []int
			var mine []*Cache
			var tokens []int32
			for text := range texts {
				if known[text]+1 >= len(texts[text]) || rng.IntN(4) == 0 {
					continue
				}
				if known[text]++; caches[text] != nil {
					which, mine, tokens = append(which, text), append(mine, caches[text]), append(tokens, texts[text][known[text]-1])
				}
			}
			if _, err := d.Step(m.ex, mine, tokens); err != nil {
				return err
			}
			note(which...)
		}
		return nil
	})
	return all
}

// Log-probabilities of decoding are those of the forward pass of training, bit for bit: for any
// batch, parts of prompts, ranks and layouts, in all precisions whose scales do not span tokens.
func TestDecodingHasTheBitsOfTraining(t *testing.T) {
	latent := with(decodable(), func(c *Config) { c.MaxPositions = longText })
	for i, p := range Precisions() {
		if err := p.CheckDecoding(); err != nil {
			if !p.scalesTensors() {
				t.Error(err)
			}
			continue
		}
		cfg, name := latent, p.Name
		switch i % 4 {
		case 1:
			cfg, name = with(latent, sharedKeys), p.Name+", grouped queries"
		case 2:
			cfg, name = with(latent, choosing), p.Name+", chosen keys"
			cfg.IndexTopK, cfg.IndexDim = 70, 32
		case 3:
			cfg, name = with(latent, likeV4), p.Name+", like DeepSeek-V4"
			cfg.Window, cfg.CSARate, cfg.HCARate, cfg.IndexTopK = 70, 4, 15, 9
		}
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 2))
			var texts [][]int32
			for n := range 4 {
				length := 2 + rng.IntN(longText-1)
				if n == 0 {
					length = longText
				}
				tokens, _ := text(rng.Uint64(), 1, length, cfg.Vocab)
				texts = append(texts, tokens)
			}
			layouts := [][2]int{{1, 1}, {2, 2}, {4, 4}, {4, 2}}
			if p.CheckReplicas() != nil {
				layouts = layouts[:3]
			}
			on := layouts[rng.IntN(len(layouts))]
			want := trainedLogProbs(t, cfg, p.Name, on[0], on[1], texts)
			ranks := 1 + i/4%2*3
			got := decodedLogProbs(t, cfg, p.Name, ranks, rng.Uint64(), texts)
			for at, prob := range got {
				if want := want[at.text][at.token-1]; prob != want {
					t.Errorf("%d ranks: token %d of %d of text %d has %v, in training on %d ranks, ep %d %v",
						ranks, at.token, len(texts[at.text]), at.text, prob, on[0], on[1], want)
				}
			}
			if n := len(got); n < 15 {
				t.Errorf("%d tokens were compared", n)
			}
		})
	}
}
