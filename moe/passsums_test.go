package moe

import (
	"testing"

	"spmoe/tensor"
)

// A bit that flips in what a pass leaves to later ones is found: in the sums over ranks of earlier
// passes, and in the gradient of the norm before the head, which waits for the end of its pass.
func TestPassSumsAreGuarded(t *testing.T) {
	const seq = 8
	cfg := tiny()
	b := batchOf(5, 4, seq, cfg.Vocab)
	for name, waiting := range map[string]func(m *Model, p *Pass) tensor.Tensor{
		"":                nil,
		"sums":            func(m *Model, _ *Pass) tensor.Tensor { return m.Groups[0].sums[0].passes.sums[0] },
		"norm's gradient": func(_ *Model, p *Pass) tensor.Tensor { return p.headNorms[0].state.dw },
	} {
		onRanks(t, 2, cfg, tensor.FP32, seq, func(m *member) error {
			m.model.Guard = true
			divideEvenly(m.model.Groups[0])
			first := b.part(m.comm.Rank(), m.comm.Rank()+1)
			first.More = true
			if _, err := m.model.Train(m.ex, first); err != nil {
				return err
			}
			p, err := m.model.Forward(m.ex, b.part(2+m.comm.Rank(), 3+m.comm.Rank()))
			if err != nil {
				return err
			}
			if waiting != nil {
				waiting(m.model, p).Bytes()[5] ^= 1
			}
			if err := p.Backward(m.ex); err != nil {
				return err
			}
			m.model.CheckGrad(m.ex, 0) // SumGrad changes Grad
			if err := m.model.Groups[0].SumGrad(m.ex); err != nil {
				return err
			}
			m.model.CheckGrad(m.ex, 0)
			if found := m.model.Damage() != 0; found != (waiting != nil) {
				t.Errorf("a flip in the %s: found %v", name, found)
			}
			return nil
		})
	}
}
