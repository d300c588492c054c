package tensor

// The size of packing buffers, for estimates. It is float64, so that that of an impossible shape
// does not overflow.

import "spmoe/tensor/internal/gemm"

// PackingSize is the size of the packing buffers of one thread that has computed some products.
type PackingSize struct{ room gemm.Room }

// Add counts a product of [m, k] and [k, n] matrices. leaves is the number of sequences over which
// it sums as in [Wgrad], and 1 for other products.
func (s *PackingSize) Add(m, n, k float64, dtype DType, leaves int) {
	s.room.Add(m, n, k, dtype.Size(), leaves)
}

// packed returns the type of packed elements: codes are decoded.
func (d DType) packed() DType {
	if d == UINT8 {
		return BF16
	}
	return d
}

// Bytes returns the size.
func (s *PackingSize) Bytes() float64 { return s.room.Bytes() }
