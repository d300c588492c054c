package generate

// Log-probabilities and experts of sampled tokens.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/moe"
)

// passExperts holds the experts of the tokens of this rank's last pass.
type passExperts struct{ layers map[int][]int32 } // by layer: [tokens, topK]

// measure makes the passes of the decoder record experts.
func (b *batch) measure() {
	m := &passExperts{layers: map[int][]int32{}}
	b.measured = m
	b.decoder.Routes = &moe.Routes{Record: func(layer int, experts []int32, _ []float32) {
		m.layers[layer] = append(m.layers[layer][:0], experts...)
	}}
}

// note keeps what the last pass has computed for texts. The pass had some tokens of this rank. Its
// last ones are the last tokens of the texts.
func (m *passExperts) note(b *batch, tokens int, texts ...*sequence) {
	if m == nil || len(texts) == 0 {
		return
	}
	first, drawn, probs := tokens-len(texts), make([]int32, len(texts)), make([]float64, len(texts))
	for i, s := range texts {
		s.next.Experts = make([]int32, b.decoder.Experts())
		for layer, all := range m.layers {
			n := len(all) / tokens
			copy(s.next.Experts[b.decoder.ExpertsBefore(layer):], all[(first+i)*n:][:n])
		}
		drawn[i] = max(s.drawn-drawnToken, -1)
	}
	if texts[0].drawn == 0 {
		return // another rank has the head
	}
	b.decoder.LogProbs(b.Ex, probs, drawn)
	for i, s := range texts {
		s.next.LogProb = probs[i]
	}
}

// share gives all ranks the measurements of this round's tokens.
func (m *passExperts) share(b *batch, drawn []int32) error {
	if m == nil {
		return nil
	}
	n := b.decoder.Experts()
	probs, experts := make([]float64, len(b.live)), make([]int32, len(b.live)*n)
	for i, s := range b.live {
		probs[i] = s.next.LogProb
		copy(experts[i*n:], s.next.Experts)
		s.next = Token{}
	}
	if err := collective.AllReduce(b.Comm, probs, collective.Sum); err != nil {
		return fmt.Errorf("exchanging log-probabilities: %w", err)
	}
	if err := collective.AllReduce(b.Comm, experts, collective.Sum); err != nil {
		return fmt.Errorf("exchanging experts: %w", err)
	}
	for i, s := range b.live {
		if drawn[i] >= drawnToken {
			s.sampled = append(s.sampled, Token{drawn[i] - drawnToken, probs[i], experts[i*n : (i+1)*n]})
		}
	}
	return nil
}
