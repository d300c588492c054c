package moe

import (
	"math"

	"spmoe/tensor"
)

// Rotary position embedding with YaRN (arXiv:2309.00071), as in DeepSeek's and Hugging Face's
// implementations. Frequencies that rotate often within the original context are unchanged, slow
// ones are divided by the factor, and those between are blended.

// rotaryTables are the tables of a model. compressed is that of layers with entries; nil: there are
// none.
type rotaryTables struct{ main, compressed *tensor.RotaryTable }

// rotaryTables tabulates the rotary embedding of positions [0, positions). In DeepSeek-V4, only
// layers with entries have YaRN, without a factor on cosines and sines.
func (c Config) rotaryTables(positions int) (t rotaryTables) {
	if c.Attention == "" {
		t.main = tensor.NewRotaryTable(positions, c.rotaryFrequencies(), c.YaRN.tableScale())
		return t
	}
	t.compressed = tensor.NewRotaryTable(positions, c.compressedRope().rotaryFrequencies(), 1)
	c.YaRN = YaRN{}
	t.main = tensor.NewRotaryTable(positions, c.rotaryFrequencies(), 1)
	return t
}

// compressedRope returns the configuration with the base of layers with entries.
func (c Config) compressedRope() Config {
	c.RopeTheta = c.CompressTheta
	return c
}

// rotaryFrequencies returns the angle per position of each of the RopeDim/2 pairs, with the float32
// roundings of the usual implementations.
func (c Config) rotaryFrequencies() []float64 {
	freq := make([]float64, c.RopeDim/2)
	low, high := c.blendRange()
	for i := range freq {
		power := float32(math.Pow(c.RopeTheta, float64(float32(2*i)/float32(c.RopeDim))))
		f := 1 / power
		if c.YaRN.Enabled() {
			interpolated := 1 / (float32(c.YaRN.Factor) * power)
			ramp := min(max(float32((float64(i)-low)/(high-low)), 0), 1)
			f = float32(interpolated*ramp) + float32(f*(1-ramp)) // not fused on any CPU
		}
		freq[i] = float64(f)
	}
	return freq
}

// blendRange returns the pairs between which frequencies change from unchanged to interpolated.
func (c Config) blendRange() (low, high float64) {
	if !c.YaRN.Enabled() {
		return 0, 1
	}
	pair := func(rotations float64) float64 {
		return float64(c.RopeDim) * math.Log(float64(c.YaRN.OriginalPositions)/(rotations*2*math.Pi)) / (2 * math.Log(c.RopeTheta))
	}
	low = max(math.Floor(pair(c.YaRN.BetaFast)), 0)
	high = min(math.Ceil(pair(c.YaRN.BetaSlow)), float64(c.RopeDim-1))
	if low == high {
		high += 0.001
	}
	return low, high
}

// scale returns YaRN's 0.1·m·ln(factor) + 1.
func (y YaRN) scale(m float64) float64 {
	if !y.Enabled() {
		return 1
	}
	return float64(0.1*m*math.Log(y.Factor)) + 1 // not fused on any CPU
}

// tableScale returns the factor on cosines and sines.
func (y YaRN) tableScale() float64 {
	if y.MScale != 0 && y.MScaleAllDim != 0 {
		return y.scale(y.MScale) / y.scale(y.MScaleAllDim)
	}
	return y.scale(1)
}

// softmaxScale returns the factor on attention scores.
func (c Config) softmaxScale() float32 {
	m := 1.0
	if c.YaRN.MScaleAllDim != 0 {
		m = c.YaRN.scale(c.YaRN.MScaleAllDim)
	}
	return float32(m * m / math.Sqrt(float64(c.KeyDim())))
}
