package tensor

// Sizes of the scratch memory of kernels, for estimates. They are float64, so that those of
// impossible shapes do not overflow.

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

// AttentionBackwardScratch returns the bytes that [CausalAttentionBackward] takes from the arena of
// each thread, for rows of operands of this type.
func AttentionBackwardScratch(rows float64, s AttentionShape, dtype DType) float64 {
	if s.Seq < 1 {
		return 0
	}
	tile := float64(s.queryRows() * (min(backwardKeys, s.Seq) + tilePadding))
	perKey := float64(min(backwardKeys, s.Seq) * (s.KeyDim + s.ValueDim))
	deltas := rows * float64(s.Heads)
	return float64(FP32.Size())*(deltas+2*tile+perKey+float64(s.Seq)*float64(s.KeyDim)) + 2*float64(dtype.Size())*tile + s.backwardPanels(dtype)
}

// backwardPanels returns the bytes of the operands that the backward pass retains.
func (s AttentionShape) backwardPanels(dtype DType) float64 {
	keys, elem := min(backwardKeys, s.Seq), dtype.Size()
	return float64(gemm.RetainedBytes(s.KeyDim, keys, elem) + gemm.RetainedBytes(s.ValueDim, keys, elem) + gemm.RetainedBytes(keys, s.KeyDim, elem))
}
