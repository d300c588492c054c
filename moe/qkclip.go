package moe

// QK-clip of Kimi K2 (arXiv:2507.20534, 2.1). The forward pass records the largest attention score
// of each head. After an update, the weights of heads whose score exceeded a limit are scaled down,
// so that the same inputs would give scores up to the limit.

import (
	"fmt"
	"math"

	"spmoe/collective"
	"spmoe/tensor"
)

// Clip scales the rows of heads whose largest score exceeds limit, by limit over that score. It
// changes nothing if scores are not recorded or h is nil.
//
// w: [heads·Rows, cols].
func (h *HeadRows) Clip(limit float64, w []float32) {
	if h == nil || h.Top == nil {
		return
	}
	cols := len(w) / (len(h.Top) * h.Rows)
	for head, top := range h.Top {
		factor := limit / float64(top)
		if !(factor < 1) || top <= 0 {
			continue
		}
		rows := w[head*h.Rows*cols:]
		scale(rows[:h.Root*cols], math.Sqrt(factor))
		scale(rows[h.Root*cols:(h.Root+h.Whole)*cols], factor)
	}
}

func scale(x []float32, a float64) { tensor.Scale(x, float32(a), x) }

// RecordScores makes training passes record the largest score of each head.
func (m *Model) RecordScores() {
	heads := m.Config.Heads
	for _, g := range m.Groups {
		if g.Name != groupNames[1] {
			continue
		}
		g.scores = make([]float32, len(m.blocks)*heads)
		for i, b := range m.blocks {
			b.attention.record(g.scores[i*heads : (i+1)*heads])
		}
	}
}

// ShareScores makes the recorded scores those of all ranks with the group. It is collective if
// scores are recorded.
func (g *Group) ShareScores() error {
	if len(g.scores) == 0 {
		return nil
	}
	if err := collective.AllReduce(g.Ranks, g.scores, collective.Max); err != nil {
		return fmt.Errorf("attention scores: %w", err)
	}
	return nil
}
