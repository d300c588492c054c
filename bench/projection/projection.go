// Package projection predicts the performance of a Mixture-of-Experts recipe on a cluster of GPUs:
// tokens/s, the time by term, and the gains from MXFP8 and a one-sided exchange.
//
// Its unit is GPU-milliseconds per token, t = 1000 / (tokens/s per GPU). This adds up over layers
// for any tensor, pipeline and expert parallelism, as long as no work is done twice. A [Budget] is
// the sum of terms. Each term is a formula over exact counts, a hardware file, tables of kernel
// efficiencies and parameters, and names the sources of its numbers. docs/projection.md has the
// formulas.
package projection

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind is the basis of a number.
type Kind string

// The kinds, from the firmest to the softest.
const (
	Exact Kind = "exact" // counted: independent of hardware
	// by this engine or on one of our GPUs, and transferable
	Measured   Kind = "measured"
	Published  Kind = "published"  // by others, for this kernel or link
	Assumed    Kind = "assumed"    // neither measured nor published
	Calibrated Kind = "calibrated" // fitted to a published throughput
)

var kinds = []Kind{Exact, Measured, Published, Assumed, Calibrated}

// softest returns the kind of a product of numbers.
func softest(all ...Kind) Kind {
	at := 0
	for _, k := range all {
		at = max(at, slices.Index(kinds, k))
	}
	return kinds[at]
}

// Symbol names a term of a budget.
type Symbol int

// The terms, in the order of the reference formula.
const (
	Grouped    Symbol = iota // t_G: products of the routed experts
	Dense                    // t_D: all other products
	Attention                // t_F: scores and values
	Casts                    // t_Q: quantization that is not included in a kernel's rate
	Shuffle                  // t_L: permuting and summing rows on a GPU
	Rowwise                  // t_M: norms, residuals, rotary embedding, SwiGLU, loss
	AllToAll                 // t_A: the exchange, as far as it is not hidden
	TensorComm               // t_T: all-gathers and reduce-scatters of tensor parallelism
	Host                     // t_H: launches and synchronization with the host
	Residual                 // t_R: the remainder at the calibration row
	Pipeline                 // t_P: bubble and uneven stages
	DataComm                 // t_dp: gradients and weights of data parallelism, as far as not hidden
	Update                   // t_opt: the optimizer
	symbols
)

// Symbols lists all terms.
func Symbols() []Symbol {
	all := make([]Symbol, symbols)
	for i := range all {
		all[i] = Symbol(i)
	}
	return all
}

var symbolNames = [symbols][2]string{
	{"t_G", "routed GEMM"}, {"t_D", "other matmul"}, {"t_F", "attention"}, {"t_Q", "casts"}, {"t_L", "local shuffle"}, {"t_M", "norms, elementwise"},
	{"t_A", "all-to-all"}, {"t_T", "tensor parallel"}, {"t_H", "host"}, {"t_R", "residual"}, {"t_P", "pipeline"}, {"t_dp", "data parallel"}, {"t_opt", "optimizer"},
}

// String returns the term's symbol, such as t_G.
func (s Symbol) String() string { return symbolNames[s][0] }

// MarshalText implements [encoding.TextMarshaler].
func (s Symbol) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// About describes the term in words.
func (s Symbol) About() string { return symbolNames[s][1] }

// costs are milliseconds per token by term.
type costs [symbols]float64

func (c *costs) add(o costs, times float64) {
	for i, v := range o {
		c[i] += v * times
	}
}

func (c *costs) sum() (total float64) {
	for _, v := range c {
		total += v
	}
	return total
}

// Term is one line of a budget.
type Term struct {
	Symbol  Symbol
	MS      float64 // GPU-milliseconds per token
	Kind    Kind
	Formula string // with its numbers
	Source  string
}

// Budget is the time per token by term.
type Budget struct {
	Run   Run
	Terms []Term // the nonzero ones

	MS           float64 // per token: the sum of the terms
	Tokens       float64 // per second and GPU
	Step         float64 // seconds per optimizer step
	FLOPs        float64 // per token as the convention counts them, without recomputation
	Convention   string
	TFLOPS       float64 // model TFLOP/s per GPU
	MFU          float64 // of the dense BF16 peak
	HFU          float64 // the same convention, including recomputed and duplicated work
	Memory       Memory  // of the fullest GPU
	AllToAll     Exchange
	Parameters   string // SHA-256 of the parameter file
	Extrapolated []string
}

// Exchange describes the all-to-alls of one layer.
type Exchange struct {
	Operations int     // per layer and microbatch, including those that recomputation repeats
	Bytes      float64 // per token and operation, including copies to its own rank
	NIC        float64 // of those between nodes
	Each       float64 // milliseconds per operation, layer and microbatch
	Total      float64 // milliseconds per token, hidden or not
	Hidden     float64 // hidden share of Total
}

// Term returns a term, or a zero term.
func (b Budget) Term(s Symbol) Term {
	for _, t := range b.Terms {
		if t.Symbol == s {
			return t
		}
	}
	return Term{Symbol: s}
}

// oneOf returns an error that lists the known names unless given is one of them.
func oneOf(what, given string, known []string) error {
	if slices.Contains(known, given) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: use one of %s", what, given, strings.Join(known, ", "))
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
