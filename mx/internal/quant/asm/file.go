package main

// The constants that the kernels share.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// Offsets in quant.Work. First arrays with 64 values for each of 32 rows.
const (
	workCode     = 0               // low byte of the code with the exponent field not yet biased
	workExponent = 32 * 64         // exponent field, or one more where the mantissa would round up a scale
	workSign     = 2 * 32 * 64     // a bit each
	workRows     = workSign + 32*8 // values of the blocks along rows: the left ones of all rows, then the right ones
	workCols     = workRows + 4*64
	workSize     = workCols + 4*64

	// INT8 has words instead of the arrays: for each block, what less the exponent is how far
	// significands are shifted.
	workRowShifts = 0
	workColShifts = 128

	// Offsets in each of the values, of 64 bytes.
	valuesScale = 0   // the E8M0 byte; along rows, the two of each row together
	valuesSafe  = 64  // the same, but for blocks of zeros one under which zeros become zeros
	valuesBias  = 128 // what to subtract from code
	valuesLimit = 192 // exponents from this on surely give normal codes
)

// Distances by which the significands of subnormal codes are shifted; beyond, a code is 0.
const (
	firstShift = 5
	lastShift  = 8
)

// lowest is the lowest scale byte that the encoders take: under it, all of an element that BF16
// holds as a subnormal rounds to zero, so that its exponent may be read as if it were normal. A
// scale is the exponent field of a block's largest magnitude less emax, at most 15.
const (
	lowest = 25
	tiny   = lowest + 15 - 1 // the greatest exponent field that is refused
)

// file is the assembly file with its constants, each a vector of 64 bytes unless it says otherwise.
type file struct {
	*asmgen.File
	odd, even asmgen.Mem // indices of the odd and even bytes of two vectors
	rounding  asmgen.Mem // for 3 bits of mantissa, then for 2: whether the 7 bits of a BF16 round up, 128 entries each
	// for k = 5 to 8: (128+m)/2^k rounded, m from 0 to 127
	significands asmgen.Mem
	bytes        map[uint8]asmgen.Mem
	highWords    asmgen.Mem // indices of the odd words of two vectors
	rightBlock   asmgen.Mem // 32 in each byte of the upper half
	pairs        asmgen.Mem // indices that bring byte 32+i behind byte i
	leading      asmgen.Mem // a word: the leading bit of a significand in the upper byte
}

func newFile() *file {
	f := &file{File: asmgen.NewFile("quant", "go run ./asm", "amd64 && !purego"), bytes: map[uint8]asmgen.Mem{}}
	f.Constant("len(Work{})", workSize)
	var odd, even, words, right, pairs []byte
	for i := range 64 {
		odd, even = append(odd, byte(2*i+1)), append(even, byte(2*i))
		right, pairs = append(right, byte(i/32*32)), append(pairs, byte(i%2*32+i/2))
		if i < 32 {
			words = append(words, byte(2*i+1), 0)
		}
	}
	f.odd, f.even, f.highWords, f.rightBlock = f.Data("odd", odd), f.Data("even", even), f.Data("highWords", words), f.Data("rightBlock", right)
	f.pairs, f.leading = f.Data("pairs", pairs), f.Data32("leading", 0x80008000)
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

// all fills a vector with copies of a byte.
func (f *file) all(fn *asmgen.Func, b uint8) asmgen.Vec {
	v := fn.Z()
	fn.I("VPBROADCASTB", f.bytes[b], v)
	return v
}

// load takes a register for a whole vector in memory.
func load(fn *asmgen.Func, from asmgen.Mem) asmgen.Vec {
	v := fn.Z()
	fn.I("VMOVDQU64", from, v)
	return v
}

// broadcast takes a register for copies of a byte or word in memory.
func broadcast(fn *asmgen.Func, mnemonic string, from asmgen.Mem) asmgen.Vec {
	v := fn.Z()
	fn.I(mnemonic, from, v)
	return v
}
