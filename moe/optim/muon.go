package optim

import (
	"fmt"
	"math"

	"spmoe/moe"
	"spmoe/tensor"
)

// Muon holds the constants of the optimizer for matrices (arXiv:2502.16982,
// https://kellerjordan.github.io/posts/muon). Its step is the orthogonalized momentum of the
// gradient g, as in torch.optim.Muon with Nesterov's momentum:
//
//	momentum = m·momentum + (1-m)·g
//	o = NewtonSchulz(m·momentum + (1-m)·g)
//	master = (1 - lr·decay)·master - lr·factor·o
//
// Each weight of linear layers is a matrix, and so is each of a routed expert. A parameter may have
// several, of equal rows: see [moe.Param]. AdamW updates the rest: embedding, head, norms and
// routers. QK-clip follows the step of a projection of queries or keys: see [moe.HeadRows].
type Muon struct {
	Momentum     float64
	Scale        string       // gives the factor and the iterations: see MuonScales
	NewtonSchulz tensor.DType // of its operands: FP32 or BF16
	Rate         float64      // learning rate of matrices, as a multiple of the schedule's
	QKClip       float64      // largest attention score; 0: no QK-clip
	Rest         AdamW        // also has the weight decay of matrices, and the type of their momentum
}

// muonScale is the factor of a step of a [rows, cols] matrix, and the iterations of its direction.
type muonScale struct {
	factor     func(rows, cols float64) float64
	iterations []Polynomial
}

var muonScales = map[string]muonScale{
	// of the original Muon: the same spectral norm relative to the root of the shape
	"original": {func(rows, cols float64) float64 { return math.Sqrt(max(1, rows/cols)) }, fiveSteps},
	// arXiv:2502.16982, 2.2: the root mean square of a step is that of AdamW, about 0.2, so that
	// both can have one learning rate
	"match_rms_adamw": {rootMeanSquare(0.2), fiveSteps},
	// DeepSeek-V4: more iterations, whose singular values are nearly 1. No file of its own training
	// has verified these.
	"deepseek_v4": {rootMeanSquare(0.18), tenSteps},
}

// rootMeanSquare returns the factor that gives a step about this root mean square.
func rootMeanSquare(rms float64) func(rows, cols float64) float64 {
	return func(rows, cols float64) float64 { return rms * math.Sqrt(max(rows, cols)) }
}

// MuonScales lists the names of the factors.
func MuonScales() []string { return []string{"match_rms_adamw", "original", "deepseek_v4"} }

// Validate returns an error for the first invalid field.
func (c Muon) Validate() error {
	switch {
	case !(c.Momentum >= 0 && c.Momentum < 1):
		return fmt.Errorf("optimizer.momentum is %g: give 0 or more, below 1", c.Momentum)
	case c.Rest.Moments == tensor.BF16 && c.Momentum > maxBF16Beta:
		return fmt.Errorf("optimizer.momentum is %g: with moments in bf16 give at most %g, because it would be rounded back instead of decaying", c.Momentum, maxBF16Beta)
	case !(c.QKClip >= 0) || math.IsInf(c.QKClip, 0):
		return fmt.Errorf("optimizer.qk_clip is %g: give 0 (off) or a positive score such as 100", c.QKClip)
	case !(c.Rate > 0) || math.IsInf(c.Rate, 0):
		return fmt.Errorf("optimizer.matrix_rate is %g: give a positive number", c.Rate)
	}
	return c.Rest.Validate()
}

// Vectors lists the momentum.
func (c Muon) Vectors() []Vector { return []Vector{{"momentum_buffer", c.Rest.Moments}} }

// WholeMatrices is true: Newton-Schulz needs all of a matrix.
func (c Muon) WholeMatrices() bool { return true }

// Of is Muon for linear layers and routed experts, and AdamW for the rest.
func (c Muon) Of(class moe.Class) Rule {
	if class == moe.Linear || class == moe.Expert {
		return c
	}
	return c.Rest
}

// Scratch returns the bytes in the arena of an Exec that the update of a [rows, cols] matrix takes:
// its direction, and what NewtonSchulz takes with its result.
func (c Muon) Scratch(rows, cols int) float64 {
	elements, side, size := float64(rows)*float64(cols), float64(min(rows, cols)), float64(c.NewtonSchulz.Size())
	return elements*(size+2*float64(tensor.FP32.Size())) + 2*side*side*size
}

// Prepare returns the update of a step.
func (c Muon) Prepare(s Step) Update {
	return func(ex *tensor.Exec, r Run) {
		mark := ex.Mark()
		defer ex.Release(mark)
		rows, cols := r.Param.Dims[0], r.Param.Dims[1]
		momentum, before := r.Vector(0)
		m, rest := float32(c.Momentum), float32((1-c.Momentum)*s.GradScale)
		tensor.LinearSum(ex, momentum, m, before, rest, r.Grad, tensor.LinearSums{X: &r.Sums.Read[1], Y: &r.Sums.Grad, Dst: &r.Sums.Wrote[1]})
		direction := ex.New(tensor.FP32, rows, cols)
		tensor.LinearSum(ex, direction, m, momentum, rest, r.Grad, tensor.LinearSums{})

		matrices := max(r.Param.Matrices, 1)
		rows /= matrices
		lr, scale := s.LR*c.Rate, muonScales[c.Scale]
		factor := scale.factor(float64(rows), float64(cols))
		master, old := r.Master()
		for i := range matrices {
			own := ex.Mark()
			o := NewtonSchulz(ex, direction.Slice(i*rows, (i+1)*rows), c.NewtonSchulz, scale.iterations)
			lo, hi := i*rows*cols, (i+1)*rows*cols
			tensor.LinearSum(ex, master.Slice(lo, hi), float32(1-float64(lr*c.Rest.WeightDecay)), old.Slice(lo, hi), float32(-lr*factor), o,
				tensor.LinearSums{X: &r.Sums.Read[0]})
			ex.Release(own)
		}
		if c.QKClip > 0 {
			r.Param.Heads.Clip(c.QKClip, master.F32())
		}
		r.Round(ex)
	}
}
