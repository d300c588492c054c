package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSwiGLUBackward compares the gradients with central differences in float64.
func TestSwiGLUBackward(t *testing.T) {
	silu := func(z float64) float64 { return z / (1 + math.Exp(-z)) }
	const n = 67
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		var rows [5][n]float32
		dgate, dup, dh, gate, up := rows[0][:], rows[1][:], rows[2][:], rows[3][:], rows[4][:]
		for i := range n {
			gate[i], up[i], dh[i] = float32(rng.NormFloat64()*4), float32(rng.NormFloat64()), float32(rng.NormFloat64())
		}
		SwiGLUBackward(dgate, dup, dh, gate, up)
		for i, d := range dh {
			const h = 1e-5
			z := float64(gate[i])
			wantGate := float64(d) * float64(up[i]) * (silu(z+h) - silu(z-h)) / (2 * h)
			wantUp := float64(d) * silu(z)
			if math.Abs(float64(dgate[i])-wantGate) > 1e-5 || math.Abs(float64(dup[i])-wantUp) > 1e-5 {
				t.Fatalf("element %d: (%v, %v), want (%v, %v)", i, dgate[i], dup[i], wantGate, wantUp)
			}
		}
	})
}
