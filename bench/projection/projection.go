// Package projection predicts the throughput of training a Mixture-of-Experts recipe on a cluster
// of GPUs.
//
// Its unit is GPU-milliseconds per token, t = 1000 / (tokens/s per GPU). This adds up over layers
// for any tensor, pipeline and expert parallelism, as long as no work is done twice. A [Budget] is
// the sum of terms: exact counts of a run's work (work.go) over the rates that data/constants.json
// holds (formula.go). fit/fit.py fits the constants to published runs, data/rows.json, and states
// how far predictions are off when a framework is left out. docs/projection.md has the figures.
package projection

import (
	"math"
	"slices"
)

// Term is one line of a budget.
type Term struct {
	Symbol    Symbol
	MS        float64 // GPU-milliseconds per token
	Formula   string
	Constants []Constant // in the formula
}

// Budget is the time per token by term.
type Budget struct {
	Run   Run
	Terms []Term // the nonzero ones

	MS     float64 // per token: the sum of the terms
	Tokens float64 // per second and GPU
	Low    float64 // 80 % interval of Tokens
	High   float64
	Kind   string  // of the run: decides the width of the interval
	Step   float64 // seconds per optimizer step
	FLOPs  float64 // per token without recomputation: causal attention, multi-token prediction counted
	TFLOPS float64 // model TFLOP/s per GPU
	MFU    float64 // of the dense BF16 peak
	GB     float64 // least memory of a GPU, without activations
	Fit    string  // SHA-256 of the table of constants
}

// Project returns the budget of a run.
func Project(r Run) (Budget, error) {
	if err := r.Check(); err != nil {
		return Budget{}, err
	}
	e, err := newEstimate(r)
	if err != nil {
		return Budget{}, err
	}
	c := data().constants.cost(r, e.gpu, e.work)
	b := Budget{Run: r, MS: c.sum(), Kind: e.kind(), GB: r.memory(e.model), Fit: Fit()}
	for s, ms := range c {
		if ms == 0 {
			continue
		}
		t := Term{Symbol: Symbol(s), MS: ms, Formula: terms[s].formula}
		for _, name := range e.uses(Symbol(s)) {
			t.Constants = append(t.Constants, data().constants[name])
		}
		b.Terms = append(b.Terms, t)
	}
	b.Tokens = 1e3 / b.MS
	half := data().scores.Widths[b.Kind]
	b.Low, b.High = b.Tokens*math.Exp(-half), b.Tokens*math.Exp(half)
	b.Step = b.MS / 1e3 * r.tokensPerGPU()
	b.FLOPs = e.model.TrainFLOPs(r.Seq)
	b.TFLOPS = b.FLOPs * b.Tokens / 1e12
	b.MFU = b.TFLOPS / e.gpu.BF16
	return b, nil
}

// estimate is a run with what does not depend on constants.
type estimate struct {
	run   Run
	model Model
	gpu   Hardware
	work  work
}

func newEstimate(r Run) (e estimate, err error) {
	e.run = r
	if e.model, err = r.model(); err != nil {
		return e, err
	}
	if e.gpu, err = r.hardware(); err != nil {
		return e, err
	}
	e.work, err = r.count(e.model, e.gpu)
	return e, err
}

// kind is the kind of run, which decides how wide its interval is.
func (e estimate) kind() string {
	switch {
	case e.model.SparseHeads > 0:
		return "sparse attention"
	case e.gpu.Chip == "chip_amd":
		return "AMD"
	case e.model.mainMoE() == 0:
		return "dense"
	case e.run.imbalance() > 1:
		return "learned router"
	case e.model.Mamba != nil || e.model.Delta != nil:
		return "hybrid"
	}
	return "experts"
}

// uses returns the names of the constants in a term of this run.
func (e estimate) uses(s Symbol) []string {
	r, list := e.run, slices.Clone(terms[s].constants)
	if s <= Attention && e.gpu.Chip != "" {
		list = append(list, e.gpu.Chip)
	}
	return slices.DeleteFunc(list, func(name string) bool {
		switch name {
		case "fp4":
			return r.Precision != "nvfp4"
		case "fp8", "fp8_hopper":
			return r.Precision == "bf16" || r.Precision == "nvfp4" || name != e.gpu.FP8
		case "hidden":
			return !r.Overlap
		case "graphs_partial", "graphs_full":
			return name != "graphs_"+r.Graphs
		case "scan":
			return e.work.scan == 0
		case "sparse":
			return e.work.sparse == 0
		case "cast":
			return e.work.cast == 0
		case "deterministic":
			return !r.Deterministic
		case "sharded":
			return !r.FSDP || r.PP > 1
		}
		return false
	})
}
