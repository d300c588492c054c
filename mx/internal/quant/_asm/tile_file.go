package main

// The constants that the kernels share.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// Offsets in quant.Work. It begins with arrays of 64 values for each of 32 rows.
const (
	workCode = 0 // low byte of the code before the exponent field is biased
	// workExponent is the exponent field, or one more where the mantissa would round a scale up.
	workExponent = 32 * 64
	workSign     = 2 * 32 * 64 // one bit each
	// workRows has the values of the blocks along rows: the left blocks of all rows, then the right
	// ones.
	workRows = workSign + 32*8
	workCols = workRows + 4*64
	workSize = workCols + 4*64

	// Offsets in each of the values, of 64 bytes.
	valuesScale = 0   // E8M0 byte; along rows, the two of a row are adjacent
	valuesSafe  = 64  // the same, raised to lowest for a block of zeros, so that its codes are zero
	valuesBias  = 128 // subtracted from the code
	valuesLimit = 192 // exponents from this value on always give normal codes
)

// The range of the shifts for the significands of subnormal codes. With a larger shift the code is
// 0.
const (
	firstShift = 5
	lastShift  = 8
)

// lowest is the smallest scale byte that the encoders support. From it on, every element that is
// subnormal in BF16 rounds to zero, so its exponent can be read as if it were normal. A scale is
// the exponent field of a block's largest magnitude less emax. emax is at most 15.
const (
	lowest = 25
	tiny   = lowest + 15 - 1 // the largest exponent field that is rejected
)

// tileFile is the assembly file and its constants. A constant is a vector of 64 bytes unless its
// comment says otherwise.
type tileFile struct {
	*asmgen.File
	odd, even asmgen.Mem // indices of the odd and even bytes of two vectors
	// rounding says whether the 7 mantissa bits of a BF16 round up: 128 entries for a mantissa of 3
	// bits, then 128 for 2 bits.
	rounding asmgen.Mem
	// significands is (128+m)/2^k rounded, for k = 5 to 8 and m from 0 to 127.
	significands asmgen.Mem
	bytes        map[uint8]asmgen.Mem
	rightBlock   asmgen.Mem // 32 in each byte of the upper half
	pairs        asmgen.Mem // indices that put byte 32+i after byte i
}

func newTileFile() *tileFile {
	f := &tileFile{File: asmgen.NewFile("quant", "go run ./_asm", "amd64 && !purego"), bytes: map[uint8]asmgen.Mem{}}
	f.Constant("len(Work{})", workSize)
	var odd, even, right, pairs []byte
	for i := range 64 {
		odd, even = append(odd, byte(2*i+1)), append(even, byte(2*i))
		right, pairs = append(right, byte(i/32*32)), append(pairs, byte(i%2*32+i/2))
	}
	f.odd, f.even, f.rightBlock = f.Data("odd", odd), f.Data("even", even), f.Data("rightBlock", right)
	f.pairs = f.Data("pairs", pairs)
	var rounding, significands []byte
	for _, mantissa := range []int{3, 2} {
		for m := range 128 {
			step := math.Ldexp(1, 7-mantissa)
			rounding = append(rounding, byte(math.RoundToEven(float64(m)/step)-math.Floor(float64(m)/step)))
		}
	}
	for k := firstShift; k <= lastShift; k++ {
		for m := range 128 {
			significands = append(significands, byte(math.RoundToEven(math.Ldexp(float64(128+m), -k))))
		}
	}
	f.rounding, f.significands = f.Data("rounding", rounding), f.Data("significands", significands)
	for _, b := range []uint8{1, tiny, lowest, 0x80, 0xff} {
		f.bytes[b] = f.Data("bytes"+asmgen.Imm(b).String()[1:], []byte{b, b, b, b})
	}
	return f
}

// broadcastByte broadcasts a byte into a new register.
func (f *tileFile) broadcastByte(fn *asmgen.Func, b uint8) asmgen.Vec {
	v := fn.Z()
	fn.I("VPBROADCASTB", f.bytes[b], v)
	return v
}

// loadZ loads a whole vector from memory into a new register.
func loadZ(fn *asmgen.Func, from asmgen.Mem) asmgen.Vec {
	v := fn.Z()
	fn.I("VMOVDQU64", from, v)
	return v
}

// broadcastZ broadcasts a byte or word from memory into a new register.
func broadcastZ(fn *asmgen.Func, mnemonic string, from asmgen.Mem) asmgen.Vec {
	v := fn.Z()
	fn.I(mnemonic, from, v)
	return v
}
