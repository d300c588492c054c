package tensor

// What the tests share: matrices with guards around them, float64 references, comparisons.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

var floats = []DType{FP32, BF16}

// eps32 is the unit roundoff of FP32.
const eps32 = 0x1p-24

// unit returns the largest relative error of rounding to dtype.
func unit(dtype DType) float64 {
	if dtype == BF16 {
		return 0x1p-8
	}
	return eps32
}

// set and get reach one element of a matrix of any layout.
func set(m Matrix, i, j int, x float64) {
	e := element(m, i, j)
	if m.dtype == BF16 {
		*(*BFloat16)(e) = ToBFloat16(float32(x))
	} else {
		*(*float32)(e) = float32(x)
	}
}

func get(m Matrix, i, j int) float64 {
	e := element(m, i, j)
	if m.dtype == BF16 {
		return float64((*(*BFloat16)(e)).Float32())
	}
	return float64(*(*float32)(e))
}

// element returns the address of an element of a float matrix.
func element(m Matrix, i, j int) unsafe.Pointer {
	if uint(i) >= uint(m.Rows) || uint(j) >= uint(m.Cols) || !m.dtype.float() {
		panic(fmt.Sprintf("element (%d, %d) of a [%d, %d] matrix of %v", i, j, m.Rows, m.Cols, m.dtype))
	}
	return unsafe.Add(m.data, (i*m.rowStride+j*m.colStride)*m.dtype.Size())
}

// region is a matrix with margin guard rows and columns on each side, all NaN: what reads them
// shows in its result, what writes them is caught by intact.
type region struct {
	Matrix
	margin int
	whole  Tensor
}

func newRegion(dtype DType, rows, cols, margin int) region {
	whole := New(dtype, rows+2*margin, cols+2*margin)
	m := whole.Mat()
	for i := range m.Rows {
		for j := range m.Cols {
			set(m, i, j, math.NaN())
		}
	}
	return region{m.RowSlice(margin, margin+rows).ColSlice(margin, margin+cols), margin, whole}
}

// intact fails if a guard of a region was overwritten.
func (g region) intact(t *testing.T) {
	t.Helper()
	m, d := g.whole.Mat(), g.margin
	for i := range m.Rows {
		for j := range m.Cols {
			inside := i >= d && i < m.Rows-d && j >= d && j < m.Cols-d
			if x := get(m, i, j); !inside && x == x {
				t.Fatalf("element (%d, %d), outside the result, was overwritten by %v", i-d, j-d, x)
			}
		}
	}
}

// margins are those that tests run with: a dense matrix, and a view of a wider one.
var margins = []int{0, 3}

// eachLayout runs f for both float types and for dense and strided matrices.
func eachLayout(t *testing.T, f func(t *testing.T, gen *generator)) {
	for _, dtype := range floats {
		for _, margin := range margins {
			t.Run(fmt.Sprintf("%v/margin=%d", dtype, margin), func(t *testing.T) {
				f(t, newGenerator(dtype, margin))
			})
		}
	}
}

// generator makes matrices of one type and layout.
type generator struct {
	*rand.Rand
	dtype  DType
	margin int
}

func newGenerator(dtype DType, margin int) *generator {
	return &generator{rand.New(rand.NewPCG(uint64(dtype), uint64(margin))), dtype, margin}
}

// matrix returns a region of standard normal numbers.
func (g *generator) matrix(rows, cols int) region { return g.of(g.dtype, rows, cols) }

func (g *generator) of(dtype DType, rows, cols int) region {
	r := newRegion(dtype, rows, cols, g.margin)
	fill(r.Matrix, g.NormFloat64)
	return r
}

// vector returns n standard normal numbers.
func (g *generator) vector(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(g.NormFloat64())
	}
	return v
}

func fill(m Matrix, value func() float64) {
	for i := range m.Rows {
		for j := range m.Cols {
			set(m, i, j, value())
		}
	}
}

// random returns a tensor of standard normal numbers.
func random(seed uint64, dtype DType, dims ...int) Tensor {
	t := New(dtype, dims...)
	fill(t.Mat(), rand.New(rand.NewPCG(seed, 0)).NormFloat64)
	return t
}

// dense is a float64 matrix, row by row: what references compute with.
type dense struct {
	rows, cols int
	v          []float64
}

func zeros(rows, cols int) dense { return dense{rows, cols, make([]float64, rows*cols)} }

func (d dense) at(i, j int) *float64 { return &d.v[i*d.cols+j] }

func (d dense) row(i int) []float64 { return d.v[i*d.cols : (i+1)*d.cols] }

// values copies a matrix.
func values(m Matrix) dense {
	d := zeros(m.Rows, m.Cols)
	for i := range m.Rows {
		for j := range m.Cols {
			*d.at(i, j) = get(m, i, j)
		}
	}
	return d
}

// vectorOf views a slice as a matrix of one row.
func vectorOf(x []float32) Matrix {
	t := New(FP32, 1, len(x))
	copy(t.F32(), x)
	return t.Mat()
}

// slack is the error allowed for element i besides the rounding of the result.
type slack func(i int) float64

func absolute(x float64) slack { return func(int) float64 { return x } }

// scaled allows s times the element of mag, the sum of the absolute values of all terms.
func scaled(mag dense, s float64) slack { return func(i int) float64 { return s * mag.v[i] } }

// near fails unless got is want, rounded once to got's type and off by no more than the slack.
func near(t *testing.T, what string, got Matrix, want dense, s slack) {
	t.Helper()
	if got.Rows != want.rows || got.Cols != want.cols {
		t.Fatalf("%s is [%d, %d], want [%d, %d]", what, got.Rows, got.Cols, want.rows, want.cols)
	}
	for i, w := range want.v {
		g := get(got, i/want.cols, i%want.cols)
		bound := (unit(got.dtype)+8*eps32)*math.Abs(w) + s(i)
		if d := math.Abs(g - w); !(d <= bound) {
			t.Fatalf("%s (%d, %d) = %v, want %v: off by %.3g, at most %.3g is allowed",
				what, i/want.cols, i%want.cols, g, w, d, bound)
		}
	}
}

// same fails unless got has exactly the values of want; NaNs are equal.
func same(t *testing.T, what string, got Matrix, want dense) {
	t.Helper()
	for i, w := range want.v {
		if g := get(got, i/want.cols, i%want.cols); g != w && (g == g || w == w) {
			t.Fatalf("%s (%d, %d) = %v, want exactly %v", what, i/want.cols, i%want.cols, g, w)
		}
	}
}

// gradient differentiates f at x numerically.
func gradient(x dense, f func() float64) dense {
	const h = 1e-5
	d := zeros(x.rows, x.cols)
	for i, x0 := range x.v {
		x.v[i] = x0 + h
		up := f()
		x.v[i] = x0 - h
		d.v[i] = (up - f()) / (2 * h)
		x.v[i] = x0
	}
	return d
}

// inner is the inner product of two matrices of one shape.
func inner(a, b dense) float64 {
	var sum float64
	for i, x := range a.v {
		sum += x * b.v[i]
	}
	return sum
}

// mustPanic fails unless f panics with a message of this package that contains want.
func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		message := fmt.Sprint(recover())
		if !strings.HasPrefix(message, "tensor: ") || !strings.Contains(message, want) {
			t.Errorf("panic %q, want one of package tensor that says %q", message, want)
		}
	}()
	f()
}
