package gemm

// BF16 is the high half of FP32.

import "math"

func wideBF16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// roundBF16 rounds to nearest even. A NaN stays a NaN and becomes quiet.
func roundBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if x != x {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
