// Package gpusums says whether the products of a recorded step have the bits that a GPU's tensor
// cores give them. The rules are those of tensor/tensorcore.
package gpusums

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"

	"spmoe/tensor"
	"spmoe/tensor/tensorcore"
)

// A Matrix holds numbers that are exact in the type they had.
type Matrix struct {
	Values     []float64
	DType      string // as safetensors names it
	Rows, Cols int
	Transposed bool // element (i, j) is at j·Rows + i of Values
}

// T returns the transpose, and nil of nil.
func (m *Matrix) T() *Matrix {
	if m == nil {
		return nil
	}
	return &Matrix{m.Values, m.DType, m.Cols, m.Rows, !m.Transposed}
}

// At returns an element.
func (m *Matrix) At(row, col int) float64 {
	if m.Transposed {
		return m.Values[col*m.Rows+row]
	}
	return m.Values[row*m.Cols+col]
}

// A Product is y = x·wᵀ (+ bias) of a step, as a GPU computed it.
type Product struct {
	X, W, Y Matrix  // [M, K], [N, K], [M, N]
	Bias    *Matrix // [N], or nil
	TF32    bool    // x and w are rounded to TF32, otherwise to BF16
	BF16    bool    // y is BF16
	All     bool    // compare all elements, and not a sample
}

// Verdict says what the bits of y are.
type Verdict string

// The verdicts.
const (
	EqualBits  Verdict = "equal bits"    // the GPU computed this product right
	OtherOrder Verdict = "another order" // rounding of another kernel explains the differences
	Wrong      Verdict = "wrong"         // no rounding of FP32 sums does
)

// A Result says which sums y has.
type Result struct {
	Verdict  Verdict `json:"verdict"`
	Compared int     `json:"compared"` // elements
	Equal    int     `json:"equal"`    // of these, under the best rule
	Parts    int     `json:"parts"`    // of K, if the bits are equal
	// Element is the row and column of the one with the largest error, in units of what rounding
	// explains. Got is its value, and Want the exact one.
	Element [2]int `json:"element"`
	Got     string `json:"got,omitempty"`
	Want    string `json:"want,omitempty"`
}

// A sample has sampled rows and columns, and at most that number of elements are explained. Parts
// of K are tried up to mostParts. Kernels for rows of an odd number of elements and for TF32 have
// more.
const (
	sampled      = 64
	mostParts    = 16
	mostOddParts = 64
	smallProduct = 1 << 25 // multiplications of a product that is always compared whole
)

// Judge tries the rules of cuBLAS on an H100 until one gives the bits of p: first those of a few
// elements, and then those of the sample. Shapes must fit, and may not be empty.
func Judge(p Product) (r Result) {
	ex := tensor.NewParallelExec(runtime.NumCPU())
	defer ex.Close()
	few, s := newSample(p, sampled/8), newSample(p, sampled)
	var best tensorcore.Plan
	least := math.MaxInt // elements that differ, less all if it holds for the few
	for _, plan := range plans(p) {
		differ := len(few.differing(ex, plan))
		if differ == 0 {
			differ = len(s.differing(ex, plan)) - len(s.want)
		}
		if differ < least {
			best, least = plan, differ
		}
		if least == -len(s.want) {
			break
		}
	}
	small := p.Y.Rows*p.Y.Cols*p.X.Cols <= smallProduct
	if (p.All || small) && least == -len(s.want) {
		s = newSample(p, math.MaxInt)
	}
	differ := s.differing(ex, best)
	r = Result{Verdict: EqualBits, Compared: len(s.want), Equal: len(s.want) - len(differ), Parts: (p.X.Cols + best.Part - 1) / best.Part}
	if len(differ) > 0 {
		s.explain(&r, differ)
	}
	return r
}

// plans lists the rules to try, each once. Rows of an odd number of elements in memory have a
// kernel of their own.
func plans(p Product) (all []tensorcore.Plan) {
	k := p.X.Cols
	add := func(plan tensorcore.Plan, tile, most int) {
		for n := 1; n <= most; n++ {
			if last, split := plan.Part, plan.Split(k, n, tile); split.Part != last {
				plan, all = split, append(all, split)
			}
		}
	}
	if p.TF32 {
		add(tensorcore.H100TF32, 32, mostOddParts)
	} else if add(tensorcore.H100BF16, 64, mostParts); k%2 == 1 || p.Y.Rows%2 == 1 || p.Y.Cols%2 == 1 {
		add(tensorcore.H100OddBF16, 8, mostOddParts)
	}
	return all
}

// sample holds some rows of x and of w, and the elements of y that belong to them.
type sample struct {
	Product
	rows, cols []int
	x, w       tensor.Tensor
	want       []float32
}

func newSample(p Product, size int) *sample {
	s := &sample{Product: p, rows: choose(p.Y.Rows, size), cols: choose(p.Y.Cols, size)}
	s.x, s.w = s.gather(&p.X, s.rows), s.gather(&p.W, s.cols)
	for _, i := range s.rows {
		for _, j := range s.cols {
			s.want = append(s.want, float32(p.Y.At(i, j)))
		}
	}
	return s
}

// choose returns numbers below n, at most size, in ascending order. They are the same in every run.
func choose(n, size int) (chosen []int) {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		if random.IntN(n-i) < size-len(chosen) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

func (s *sample) gather(m *Matrix, rows []int) tensor.Tensor {
	values, bits := tensor.New(tensor.FP32, len(rows), m.Cols), 16
	if s.TF32 {
		bits = 13
	}
	for r, i := range rows {
		for k := range m.Cols {
			values.F32()[r*m.Cols+k] = round(float32(m.At(i, k)), bits)
		}
	}
	return values
}

// differing lists the elements that have other bits than the plan gives them.
func (s *sample) differing(ex *tensor.Exec, plan tensorcore.Plan) (differ []int) {
	defer ex.Reset()
	const least = -126 // exponent of a normal number
	out := tensor.New(tensor.FP32, len(s.rows), len(s.cols))
	tensor.CoreMatMul(ex, out.Mat(), tensor.CoreOperand{Matrix: s.x.Mat(), Least: least}, tensor.CoreOperand{Matrix: s.w.Mat(), Least: least}, tensor.CoreSum{Plan: plan})
	for i, v := range out.F32() {
		if s.Bias != nil {
			v += float32(s.Bias.Values[s.cols[i%len(s.cols)]])
		}
		if s.BF16 {
			v = round(v, 16)
		}
		if math.Float32bits(v) != math.Float32bits(s.want[i]) {
			differ = append(differ, i)
		}
	}
	return differ
}

// round rounds x to nearest even without its last bits.
func round(x float32, bits int) float32 {
	u := math.Float32bits(x)
	u += 1<<(bits-1) - 1 + u>>bits&1
	return math.Float32frombits(u >> bits << bits)
}

// explain sets the verdict of a product that no rule gives: whether rounding explains the elements
// that differ, or the first of many. FP32 sums in another order differ by a multiple of 2^-24 of
// the sum of magnitudes that grows with the number of additions one after the other, at most a few
// hundred.
func (s *sample) explain(r *Result, differ []int) {
	const sums = 0x1p-16
	half := 0x1p-24
	if s.BF16 {
		half = 0x1p-8
	}
	k, x, w, worst := s.X.Cols, s.x.F32(), s.w.F32(), 0.0
	for _, i := range differ[:min(len(differ), sampled*sampled)] {
		row, col := i/len(s.cols), i%len(s.cols)
		exact, magnitude := 0.0, 0.0
		for e := range k {
			product := float64(x[row*k+e]) * float64(w[col*k+e])
			exact += product
			magnitude += math.Abs(product)
		}
		if s.Bias != nil {
			exact += s.Bias.Values[s.cols[col]]
		}
		got := float64(s.want[i])
		allowed := half*math.Abs(exact) + sums*magnitude + math.SmallestNonzeroFloat32
		if e := math.Abs(got-exact) / allowed; !(e <= worst) {
			worst, r.Element = e, [2]int{s.rows[row], s.cols[col]}
			r.Got = fmt.Sprintf("%.9g", got)
			r.Want = fmt.Sprintf("%.9g", exact)
		}
	}
	r.Parts, r.Verdict = 0, OtherOrder
	if !(worst <= 1) {
		r.Verdict = Wrong
	}
}
