// Package nvfp4 holds AVX-512 kernels for NVFP4: E2M1 codes, two per byte, in blocks that are 16
// elements long, with E4M3 scales. They match the definitions of packages mx and format bit for
// bit. A caller may run them on the tiers of quant.Tiles only.
//
// A vector has 16 FP32. All lengths are whole vectors and greater than 0.
package nvfp4

//go:generate go run ./_asm

import "unsafe"

// Block is the length of a block, and the number of FP32 in a vector.
const Block = 16

// AmaxBlocks sets amax to the largest magnitude of each block of x. A NaN is larger than all
// numbers.
func AmaxBlocks(amax, x []float32) {
	amaxBlocksAVX512(data(amax), data(x[:Block*len(amax)]), len(amax))
}

// AmaxBF16 updates most with the bits of the largest magnitudes in x, whose length is a multiple of
// 32. Element i of x counts for element i%32 of most.
func AmaxBF16(most *[32]uint16, x []uint16) {
	amaxWordsAVX512(unsafe.Pointer(most), data(x), len(x)/32)
}

// Scales sets codes to the E4M3 scales of blocks with the given largest magnitudes, and factors to
// the multipliers of their elements: scale = amax·encode, factor = 1/(scale·decode). It reports
// whether a magnitude is NaN or infinite. Such a block has a NaN scale and no meaningful factor.
func Scales(codes []uint8, factors, amax []float32, encode, decode float32) (odd bool) {
	return scalesAVX512(data(codes), data(factors[:len(codes)]), data(amax[:len(codes)]), len(codes)/Block, encode, decode)
}

// EncodeRows writes the codes of x, rounded to nearest. Each block has one factor.
func EncodeRows(codes []uint8, x, factors []float32) {
	encodeRowsAVX512(data(codes[:len(x)/2]), data(x), data(factors[:len(x)/Block]), len(x)/Block)
}

// EncodeCols is EncodeRows with one factor per element.
func EncodeCols(codes []uint8, x, factors []float32) {
	encodeColsAVX512(data(codes[:len(x)/2]), data(x), data(factors[:len(x)]), len(x)/Block)
}

// EncodeStochasticRows is EncodeRows with codes chosen by draws, one per element.
func EncodeStochasticRows(codes []uint8, x, factors []float32, draws []uint16) {
	encodeStochasticRowsAVX512(data(codes[:len(x)/2]), data(x), data(factors[:len(x)/Block]), data(draws[:len(x)]), len(x)/Block)
}

// EncodeStochasticCols is EncodeCols with codes chosen by draws, one per element.
func EncodeStochasticCols(codes []uint8, x, factors []float32, draws []uint16) {
	encodeStochasticColsAVX512(data(codes[:len(x)/2]), data(x), data(factors[:len(x)]), data(draws[:len(x)]), len(x)/Block)
}

// DecodeRows sets dst to BF16 numbers: codes times the scale of their block. These products must be
// exact in BF16.
func DecodeRows(dst []uint16, codes []uint8, scales []float32) {
	decodeRowsAVX512(data(dst), data(codes[:len(dst)/2]), data(scales[:len(dst)/Block]), len(dst)/Block)
}

// DecodeCols is DecodeRows with one scale per element.
func DecodeCols(dst []uint16, codes []uint8, scales []float32) {
	decodeColsAVX512(data(dst), data(codes[:len(dst)/2]), data(scales[:len(dst)]), len(dst)/Block)
}

// HadamardCols replaces 16 rows of FP32 by their Hadamard transform along columns: H·diag(s)/4. Bit
// i of signs says whether s is -1 in row i.
func HadamardCols(x []float32, signs uint16) {
	cols := len(x) / Block
	hadamardAVX512(data(x), 4*cols, cols/Block, int(signs))
}

// Draw sets out to random numbers of Philox4x32-10 (see package philox): blocks of 8 numbers, with
// counters from the given one on, whose first word counts up. The length of out is a multiple of
// DrawUnit.
func Draw(out []uint16, key *[2]uint32, counter *[4]uint32) {
	drawAVX512(data(out), unsafe.Pointer(key), unsafe.Pointer(counter), len(out)/DrawUnit)
}

// DrawUnit is the number of random numbers that Draw makes at a time.
const DrawUnit = 128

func data[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }
