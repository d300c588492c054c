package quant

// Kernels for E4M3 codes with FP32 scales. A caller may run them on the tiers of Tiles only.
// Numbers are the bits of BF16, in runs of 32 elements. All lengths are whole runs, at least one.

// AmaxRuns sets amax to the largest magnitude of each run of x, NaN above all numbers.
func AmaxRuns(amax []float32, x []uint16) {
	amaxRunsAVX512(data(amax), data(x[:blockSize*len(amax)]), len(amax))
}

// AmaxColumns sets amax to the largest magnitude of each column in the given number of rows. Row i
// begins at x[i·stride].
func AmaxColumns(amax []float32, x []uint16, stride, rows int) {
	amaxColumnsAVX512(data(amax), data(x[:(rows-1)*stride+len(amax)]), 2*stride, rows, len(amax)/blockSize)
}

// EncodeRuns writes the codes of x, whose elements are finite. Each run has one factor.
func EncodeRuns(codes []uint8, x []uint16, factors []float32) {
	encodeRunsAVX512(data(codes[:len(x)]), data(x), data(factors[:len(x)/blockSize]), len(x)/blockSize)
}

// EncodeColumns writes the codes of a matrix whose columns have one factor each. Row i begins at
// x[i·stride] and at codes[i·step].
func EncodeColumns(codes []uint8, x []uint16, factors []float32, step, stride, rows int) {
	n := len(factors)
	encodeColumnsAVX512(data(codes[:(rows-1)*step+n]), data(x[:(rows-1)*stride+n]), data(factors), step, 2*stride, rows, n/blockSize)
}

// DecodeRuns sets dst to codes times the scale of their run. These products must be exact in BF16.
func DecodeRuns(dst []uint16, codes []uint8, scales []float32) {
	decodeRunsAVX512(data(dst), data(codes[:len(dst)]), data(scales[:len(dst)/blockSize]), len(dst)/blockSize)
}

// DecodeColumns is DecodeRuns with one scale per element.
func DecodeColumns(dst []uint16, codes []uint8, scales []float32) {
	decodeColumnsAVX512(data(dst), data(codes[:len(dst)]), data(scales[:len(dst)]), len(dst)/blockSize)
}
