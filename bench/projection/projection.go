// Package projection says what a Mixture-of-Experts recipe would do on a cluster of GPUs: tokens a
// second, where the time goes, and what MXFP8 and a one-sided exchange each buy.
//
// Its unit is GPU-milliseconds a token, t = 1000 / (tokens a second of a GPU). That adds up over
// layers whatever tensor, pipeline and expert parallelism are, as long as no work is done twice. A
// [Budget] is the sum of terms, each a formula over exact counts, a hardware file, tables of kernel
// efficiencies and parameters; every term says where its numbers come from. docs/projection.md has
// the formulas.
package projection

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kind says what a number rests on.
type Kind string

// The kinds, from the firmest to the softest.
const (
	Exact      Kind = "exact"      // counted: hardware-free
	Measured   Kind = "measured"   // by this engine or on a GPU of ours, and transferable
	Published  Kind = "published"  // by others, for this kernel or link
	Assumed    Kind = "assumed"    // neither measured nor published
	Calibrated Kind = "calibrated" // fitted on the one calibration row
)

var kinds = []Kind{Exact, Measured, Published, Assumed, Calibrated}

// softest returns the kind on which a product of numbers rests.
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
	Casts                    // t_Q: quantization that no kernel's rate contains
	Shuffle                  // t_L: permuting and summing rows on a GPU
	Rowwise                  // t_M: norms, residuals, rotary embedding, SwiGLU, loss
	AllToAll                 // t_A: the exchange, as far as nothing hides it
	TensorComm               // t_T: all-gathers and reduce-scatters of tensor parallelism
	Host                     // t_H: launches and synchronization with the host
	Residual                 // t_R: what is left at the calibration row
	Pipeline                 // t_P: bubble and uneven stages
	DataComm                 // t_dp: gradients and weights of data parallelism, as far as nothing hides them
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

// String is the term's symbol, such as t_G.
func (s Symbol) String() string { return symbolNames[s][0] }

// MarshalText writes the symbol.
func (s Symbol) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// About says in words what the term is.
func (s Symbol) About() string { return symbolNames[s][1] }

// costs are milliseconds a token by term.
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
	MS      float64 // GPU-milliseconds a token
	Kind    Kind
	Formula string // with its numbers
	Source  string
}

// Budget is where the time of a token goes.
type Budget struct {
	Run   Run
	Terms []Term // those that are not zero

	MS           float64 // a token: the sum of the terms
	Tokens       float64 // a second of one GPU
	Step         float64 // seconds of an optimizer step
	FLOPs        float64 // of a token as the convention counts them, without recomputation
	Convention   string
	TFLOPS       float64 // model TFLOP/s of a GPU
	MFU          float64 // of the dense BF16 peak
	HFU          float64 // the same with what is computed again, or twice
	Memory       Memory  // of the fullest GPU
	AllToAll     Exchange
	Parameters   string // SHA-256 of the parameter file
	Extrapolated []string
}

// Exchange is what the all-to-alls of one layer move.
type Exchange struct {
	Operations int     // a layer and microbatch, with those that recomputation repeats
	Bytes      float64 // that a token sends in one of them, copies to its own rank included
	NIC        float64 // of those between nodes
	Each       float64 // milliseconds of one of them, a layer and microbatch
	Total      float64 // milliseconds a token, hidden or not
	Hidden     float64 // share of Total
}

// Term returns a term, or one of zero.
func (b Budget) Term(s Symbol) Term {
	for _, t := range b.Terms {
		if t.Symbol == s {
			return t
		}
	}
	return Term{Symbol: s}
}

// one of a list, or an error that lists them.
func oneOf(what, given string, known []string) error {
	if slices.Contains(known, given) {
		return nil
	}
	return fmt.Errorf("%s %q is unknown: use one of %s", what, given, strings.Join(known, ", "))
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
