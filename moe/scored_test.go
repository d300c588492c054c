package moe

import (
	"math"
	"testing"

	"spmoe/tensor"
)

// An evaluation of some of the targets has their losses, and counts those among them that the model
// finds most likely. Both follow from the logits. The vocabulary has several blocks.
func TestSomeTargets(t *testing.T) {
	const seq = 8
	cfg := with(tiny(), func(c *Config) { c.Vocab, c.MTPLayers = 20_001, 1 })
	m := alone(t, cfg, tensor.FP32, seq)
	b := batchOf(2, 3, seq, cfg.Vocab)
	logits, err := m.model.Logits(m.ex, b.Inputs, seq)
	if err != nil {
		t.Fatal(err)
	}
	b.Unscored = make([]bool, len(b.Targets))
	wantBest, kept := make([]int, 3), b
	kept.Targets = append([]int32(nil), b.Targets...)
	for i := range b.Targets {
		row := logits.Slice(i, i+1).F32()
		best := int32(0)
		for id, x := range row {
			if x > row[best] {
				best = int32(id)
			}
		}
		if i%3 == 0 { // the likeliest token, and not in all sequences alike
			b.Targets[i] = best
			kept.Targets[i] = best
		}
		if b.Unscored[i] = i%seq < 2+i/seq; b.Unscored[i] {
			kept.Targets[i] = -1
		} else if b.Targets[i] == best {
			wantBest[i/seq]++
		}
	}
	loss, err := m.model.Eval(m.ex, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := crossEntropy(logits, kept.Targets); math.Abs(loss.Sum/want-1) > 1e-6 || loss.Tokens != 3*seq-2-3-4 {
		t.Errorf("Eval says %.9g nats of %d targets, the logits %.9g of %d", loss.Sum, loss.Tokens, want, 3*seq-2-3-4)
	}
	for i, best := range m.model.SequenceBest {
		if best != wantBest[i] || best == 0 {
			t.Errorf("sequence %d: %d targets are the likeliest, want %d", i, best, wantBest[i])
		}
	}
}
