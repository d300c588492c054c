package trainer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Tokens are drawn in proportion to exp(logit / temperature).
func TestDraw(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	logits := []float32{0, float32(sampleTemperature * math.Ln2), -1e30, float32(sampleTemperature * math.Log(5))}
	want := []float64{1.0 / 8, 2.0 / 8, 0, 5.0 / 8}
	const n = 20000
	var counts [4]int
	for range n {
		counts[draw(rng, logits)]++
	}
	for token, p := range want {
		if got := float64(counts[token]) / n; math.Abs(got-p) > 0.02 {
			t.Errorf("token %d is drawn with probability %g, want %g", token, got, p)
		}
	}
	nan := float32(math.NaN())
	for _, logits := range [][]float32{{nan, nan, nan}, {0, nan, 1}, {float32(math.Inf(1)), 0, 0}, {float32(math.Inf(-1)), float32(math.Inf(-1))}} {
		if got := draw(rng, logits); got < 0 || int(got) >= len(logits) {
			t.Errorf("from %v token %d is drawn", logits, got)
		}
	}
}
