package gemm

// Helpers that the tests share: matrices with guards around them, shapes and layouts, tiers.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/internal/vec"
)

// eachTier runs f with the kernels of each tier.
func eachTier(t *testing.T, f func(t *testing.T, k *kernels)) {
	t.Helper()
	cputest.Each(t, table, f)
}

// matrix is a view with room around it: gap elements between rows (or columns) and at both ends,
// all holding guard.
type matrix[T uint8 | uint16 | float32] struct {
	View
	memory []T
	guard  T
}

const gap = 5

func newMatrix[T uint8 | uint16 | float32](rows, cols int, transposed bool, guard T) matrix[T] {
	major, minor := rows, cols
	if transposed {
		major, minor = cols, rows
	}
	m := matrix[T]{memory: make([]T, (major+2)*(minor+gap)), guard: guard}
	for i := range m.memory {
		m.memory[i] = guard
	}
	m.View = strided(unsafe.Pointer(&m.memory[minor+gap]), major, minor, minor+gap, 1)
	if transposed {
		m.View = m.View.transposed()
	}
	return m
}

func (m matrix[T]) fill(value func() T) matrix[T] {
	for i := range m.Rows {
		for j := range m.Cols {
			*at[T](m.View, i, j) = value()
		}
	}
	return m
}

// clone copies a matrix that is not transposed.
func (m matrix[T]) clone() matrix[T] {
	m.memory = append([]T{}, m.memory...)
	m.Ptr = unsafe.Pointer(&m.memory[m.RowStride])
	return m
}

// elements returns the elements row by row, and fails if anything but them was written.
func (m matrix[T]) elements(t *testing.T) []T {
	t.Helper()
	var all []T
	whole := append([]T{}, m.memory...)
	for i := range m.Rows {
		for j := range m.Cols {
			all = append(all, *at[T](m.View, i, j))
			*at[T](m.View, i, j) = m.guard
		}
	}
	for i, x := range m.memory {
		if x != m.guard {
			t.Errorf("element %d, outside the result, was overwritten by %v", i, x)
			break
		}
	}
	copy(m.memory, whole)
	return all
}

// Guards around operands are NaNs, which appear in the result if they are read.
const nan16 = 0x7fc1

func operands[T uint8 | uint16 | float32](r *rand.Rand, m, n, k int, aT, bT bool) (a, b matrix[T]) {
	var value func() T
	var guard T
	switch v := any(&value).(type) {
	case *func() uint16:
		*v = func() uint16 { return vec.ToBF16(float32(r.NormFloat64())) }
		*any(&guard).(*uint16) = nan16
	case *func() float32:
		*v = func() float32 { return float32(r.NormFloat64()) }
		*any(&guard).(*float32) = float32(math.NaN())
	}
	return newMatrix(m, k, aT, guard).fill(value), newMatrix(k, n, bT, guard).fill(value)
}

const guard = -12345

func results(r *rand.Rand, m, n int) matrix[float32] {
	return newMatrix[float32](m, n, false, guard).fill(func() float32 { return float32(r.NormFloat64()) })
}

var shapes = []struct{ m, n, k int }{
	{1, 1, 1}, {1, 33, 2}, {2, 3, 5}, {3, 15, 31}, {5, 16, 32}, {7, 17, 33}, {11, 31, 64}, {12, 32, 65}, {13, 47, 7},
	{25, 64, 48}, {31, 96, 127}, {30, 100, 192}, {23, 1, 77}, {1, 200, 300}, {100, 8, 3}, {17, 40, 0},
	{13, 40, 1027}, {391, 33, 20}, {6, 80, 513}, {17, 29, 2081}, {12, 20, 1024},
	{4, 9, 1056}, {8, 75, 544}, // few rows of whole blocks
}

var layouts = []struct{ aT, bT bool }{{false, false}, {false, true}, {true, false}, {true, true}}

func eachShape(t *testing.T, f func(t *testing.T, r *rand.Rand, m, n, k int, aT, bT bool)) {
	for _, s := range shapes {
		for _, l := range layouts {
			t.Run(fmt.Sprintf("%dx%dx%d,%v,%v", s.m, s.n, s.k, l.aT, l.bT), func(t *testing.T) {
				f(t, rand.New(rand.NewPCG(uint64(s.m), uint64(s.n))), s.m, s.n, s.k, l.aT, l.bT)
			})
		}
	}
}

// shortened reports whether -short leaves out a product of m·n·k = size. Emulators, which are slow,
// run the tests with -short.
func shortened(size, limit int) bool { return testing.Short() && size > limit }

// poison fills the scratch memory with NaNs, which appear in a result that uses unwritten memory.
// Products of the shapes here use less than a megabyte of each buffer.
func (s *Scratch) poison() {
	for _, b := range []*buffer{&s.a, &s.spans, &s.rows[0], &s.rows[1], &s.b, &s.sums, &s.edge, &s.chunks, &s.partial, &s.decoded[0], &s.decoded[1]} {
		for done := 0; done < min(len(b.words), 1<<18); {
			done += copy(b.words[done:], nans)
		}
	}
}

// nans are NaNs as FP32 and as BF16.
var nans = slices.Repeat([]float32{math.Float32frombits(0x7fc17fc1)}, 1<<12)
