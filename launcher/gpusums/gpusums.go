// Package gpusums says whether a recorded product has the bits that a GPU's tensor cores give it.
package gpusums

import (
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"spmoe/tensor/tensorcore"
)

// A Matrix has rows of the same length in FP32. Its elements are exact in the type they had.
type Matrix struct {
	Values     []float32
	Rows, Cols int
}

// A Product is y = x·wᵀ (+ bias) of a step, as a GPU computed it.
type Product struct {
	X, W, Y Matrix    // [M, K], [N, K], [M, N]
	Bias    []float32 // [N], or nil
	TF32    bool      // x and w are FP32, which the GPU rounded to TF32; otherwise they are BF16
	BF16    bool      // y is BF16
	All     bool      // compare all elements, and not a sample
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
	Verdict         Verdict
	Compared, Equal int // elements; Equal under the best rule
	Parts           int // of K, if the bits are equal
	// Row and Col are the element with the largest error, in units of what rounding explains. Error
	// is that error, Got the element's value, and Want the exact one.
	Row, Col         int
	Got, Want, Error float64
}

// A sample has this many rows and columns.
const sampled = 64

// mostParts is the largest number of parts of K that are tried. Kernels for rows of an odd number
// of elements and for TF32 have more of them than others.
const (
	mostParts    = 16
	mostOddParts = 64
)

// Judge tries the rules of cuBLAS on an H100 until one gives the bits of p.
func Judge(p Product) (Result, error) {
	if p.X.Cols != p.W.Cols || p.Y.Rows != p.X.Rows || p.Y.Cols != p.W.Rows || p.X.Cols == 0 {
		return Result{}, fmt.Errorf("a product of [%d, %d] and [%d, %d]ᵀ into [%d, %d]", p.X.Rows, p.X.Cols, p.W.Rows, p.W.Cols, p.Y.Rows, p.Y.Cols)
	}
	s := newSample(p)
	best := Result{Compared: len(s.want)}
	for _, plan := range plans(p) {
		if equal := s.equal(plan); equal > best.Equal {
			best.Equal, best.Parts = equal, partsOf(plan, p.X.Cols)
		}
		if best.Equal == best.Compared {
			best.Verdict = EqualBits
			return best, nil
		}
	}
	best.Parts = 0
	s.explain(&best)
	return best, nil
}

// plans lists the rules to try, each once.
func plans(p Product) (all []tensorcore.Plan) {
	k := p.X.Cols
	add := func(plan tensorcore.Plan, tile, most int) {
		seen := map[int]bool{}
		for n := 1; n <= most; n++ {
			split := plan.Split(k, n, tile)
			if !seen[split.Part] {
				all = append(all, split)
			}
			seen[split.Part] = true
		}
	}
	switch {
	case p.TF32:
		add(tensorcore.H100TF32, 32, mostOddParts)
	case k%2 == 1:
		add(tensorcore.H100OddBF16, 8, mostOddParts)
	default:
		add(tensorcore.H100BF16, 64, mostParts)
	}
	return all
}

func partsOf(p tensorcore.Plan, k int) int { return (k + p.Part - 1) / p.Part }

// sample holds some rows of x and of w, and the elements of y that belong to them.
type sample struct {
	Product
	rows, cols []int
	x, w       []float32
	want       []float32
}

func newSample(p Product) *sample {
	s := &sample{Product: p, rows: choose(p.Y.Rows, p.All), cols: choose(p.Y.Cols, p.All)}
	s.x, s.w = s.gather(p.X, s.rows), s.gather(p.W, s.cols)
	for _, i := range s.rows {
		for _, j := range s.cols {
			s.want = append(s.want, p.Y.Values[i*p.Y.Cols+j])
		}
	}
	return s
}

// choose returns numbers below n, in ascending order: all, or some that are the same in every run.
func choose(n int, all bool) (chosen []int) {
	random, left := rand.New(rand.NewPCG(1, uint64(n))), sampled
	for i := range n {
		if all || random.IntN(n-i) < left {
			chosen = append(chosen, i)
			left--
		}
	}
	return chosen
}

func (s *sample) gather(m Matrix, rows []int) []float32 {
	values := make([]float32, 0, len(rows)*m.Cols)
	for _, i := range rows {
		values = append(values, m.Values[i*m.Cols:(i+1)*m.Cols]...)
	}
	if s.TF32 {
		for i, v := range values {
			values[i] = round(v, 13)
		}
	}
	return values
}

// equal counts the elements with the bits of the plan.
func (s *sample) equal(plan tensorcore.Plan) (n int) {
	k, got := s.X.Cols, make([]float32, len(s.want))
	source := func(values []float32) tensorcore.Source {
		const least = -126
		return tensorcore.Source{Values: unsafe.Pointer(unsafe.SliceData(values)), Rows: len(values) / k, K: k, RowStride: k, ColStride: 1, Least: least}
	}
	job, room := tensorcore.Job{Plan: plan, A: source(s.x), B: source(s.w)}, tensorcore.NewRoom(nil)
	job.Multiply(&room, got, len(s.cols), 0, len(s.rows), 0, len(s.cols))
	for i, v := range got {
		if s.Bias != nil {
			v += s.Bias[s.cols[i%len(s.cols)]]
		}
		if s.BF16 {
			v = round(v, 16)
		}
		if math.Float32bits(v) == math.Float32bits(s.want[i]) {
			n++
		}
	}
	return n
}

// round rounds x to nearest even without its last bits.
func round(x float32, bits int) float32 {
	u := math.Float32bits(x)
	u += 1<<(bits-1) - 1 + u>>bits&1
	return math.Float32frombits(u >> bits << bits)
}

// explain sets the verdict of a product that no rule gives: whether rounding explains its elements.
// FP32 sums in another order differ by a multiple of 2^-24 of the sum of magnitudes that grows with
// the number of additions one after the other, at most a few hundred.
func (s *sample) explain(r *Result) {
	const sums = 0x1p-16
	half := 0x1p-24
	if s.BF16 {
		half = 0x1p-8
	}
	k := s.X.Cols
	for i, got := range s.want {
		row, col := i/len(s.cols), i%len(s.cols)
		exact, magnitude := 0.0, 0.0
		for e := range k {
			product := float64(s.x[row*k+e]) * float64(s.w[col*k+e])
			exact += product
			magnitude += math.Abs(product)
		}
		if s.Bias != nil {
			exact += float64(s.Bias[s.cols[col]])
		}
		allowed := half*math.Abs(exact) + sums*magnitude + math.SmallestNonzeroFloat32
		if e := math.Abs(float64(got)-exact) / allowed; !(e <= r.Error) {
			r.Row, r.Col, r.Got, r.Want, r.Error = s.rows[row], s.cols[col], float64(got), exact, e
		}
	}
	r.Verdict = OtherOrder
	if !(r.Error <= 1) {
		r.Verdict = Wrong
	}
}
