package stream

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"spmoe/tensor/cpu/cputest"
)

// eachTier runs f with the kernels of each tier in place.
func eachTier(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	cputest.Each(t, table, func(t *testing.T, ks kernels) {
		before := active
		defer func() { active = before }()
		active = ks
		f(t)
	})
}

// All lengths and alignments are copied, and the bytes around them stay.
func TestCopy(t *testing.T) { eachTier(t, testCopy) }

func testCopy(t *testing.T) {
	src := make([]byte, 2100)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for n := range 1100 {
		for _, shift := range []int{0, 1, 32, 40} {
			memory := make([]byte, 2100)
			want := make([]byte, 2100)
			copy(want[64+shift:], src[shift/2:][:n])
			Copy(memory[64+shift:][:n], src[shift/2:][:n])
			Fence()
			if !bytes.Equal(memory, want) {
				t.Fatalf("copy of %d bytes to a shift of %d", n, shift)
			}
		}
	}
}

// A sum has the bits of adding one row after the other, for every length and number of rows.
func TestSum(t *testing.T) { eachTier(t, testSum) }

func testSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 3, 8, 33} {
		for _, columns := range []int{0, 1, 31, 127, 128, 129, 256, 700} {
			rows, weights := make([]unsafe.Pointer, n), make([]float32, n)
			want, got := make([]float32, columns), make([]float32, columns+1)
			for i := range rows {
				row := make([]uint16, columns+1)
				for j := range row {
					row[j] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
				}
				rows[i], weights[i] = unsafe.Pointer(&row[0]), r.Float32()
				for j := range want {
					want[j] += float32(weights[i] * math.Float32frombits(uint32(row[j])<<16))
				}
			}
			got[columns] = 7
			Sum(got[:columns], rows, rows, weights)
			if !slices.Equal(got, append(want, 7)) {
				t.Errorf("%d rows of %d columns: %v, want %v", n, columns, got, want)
			}
		}
	}
}
