package tensor

import "testing"

// TestWords: every bit of a tensor changes its checksum, also in codes of any number of bytes, and
// parts add up to the whole.
func TestWords(t *testing.T) {
	ex := NewParallelExec(2)
	defer ex.Close()
	words := func(x Tensor) uint32 {
		var sum Sum
		Words(ex, &sum, x)
		return sum.Load()
	}
	for _, dtype := range []DType{FP32, BF16, UINT8} {
		x := New(dtype, 5*runLen+3)
		for i := range x.Bytes() {
			x.Bytes()[i] = byte(i * 37)
		}
		whole := words(x)
		if got := words(x.Slice(0, 2*runLen)) + words(x.Slice(2*runLen, x.Len())); got != whole {
			t.Errorf("%v: parts add up to %#x, not %#x", dtype, got, whole)
		}
		for at := 0; at < len(x.Bytes()); at += 101 {
			for bit := range 8 {
				x.Bytes()[at] ^= 1 << bit
				if words(x) == whole {
					t.Errorf("%v: bit %d of byte %d changes nothing", dtype, bit, at)
				}
				x.Bytes()[at] ^= 1 << bit
			}
		}
	}
}
