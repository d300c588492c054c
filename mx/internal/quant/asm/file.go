package main

// The constants that the kernels share, and where the fields of the Go structs lie.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// Offsets in quant.Rule.
const (
	ruleRoundUp  = 0
	ruleShift    = 2
	ruleMantissa = 4
	ruleEmax     = 6
	ruleLargest  = 7
	ruleBias     = 8
	ruleLimit    = 9
	ruleExact    = 10
	ruleAlign    = 11
	ruleMask     = 12
	ruleTable    = 16
)

// Offsets in quant.Tile: all fields have 8 bytes.
const (
	tileWork = 8 * iota
	tileRule
	tileX
	tileStride
	tileRows
	tileRowCodes
	tileRowStride
	tileRowScales
	tileRowScaleStep
	tileColCodes
	tileColStride
	tileColScales
)

// Offsets in quant.Work. First three arrays with 64 bytes for each of 32 rows.
const (
	workCode     = 0           // low byte of the code with the exponent field not yet biased
	workExponent = 32 * 64     // exponent field, or one more where the mantissa would round up a scale
	workSign     = 2 * 32 * 64 // sign in the top bit
	workRows     = 3 * 32 * 64 // values of the blocks along rows: the left ones of all rows, then the right ones
	workCols     = workRows + 4*64
	workSize     = workCols + 4*64

	// Offsets in each of the latter, of 64 bytes.
	valuesScale = 0   // the E8M0 byte
	valuesSafe  = 64  // the same, but for blocks of zeros one under which zeros become zeros
	valuesBias  = 128 // what to subtract from code
	valuesLimit = 192 // exponents from this on surely give normal codes
)

// lowest is the lowest scale byte that the encoders take: under it, all of an element that BF16 holds as a subnormal
// rounds to zero, so that its exponent may be read as if it were normal. A scale is the exponent field of a block's
// largest magnitude less emax, at most 15.
const (
	lowest = 25
	tiny   = lowest + 15 - 1 // the greatest exponent field that is refused
)

// file is the assembly file with its constants, each a vector of 64 bytes unless it says otherwise.
type file struct {
	*asmgen.File
	odd, even asmgen.Mem // indices of the odd and even bytes of two vectors
	rounding  asmgen.Mem // for 3 bits of mantissa, then for 2: whether the 7 bits of a BF16 round up, 128 entries each
	// for k = 1 to 8: (128+m)/2^k rounded, m from 0 to 127
	significands asmgen.Mem
	bytes        map[uint8]asmgen.Mem
	highWords    asmgen.Mem // indices of the odd words of two vectors
	rightBlock   asmgen.Mem // 32 in each byte of the upper half
}

func newFile() *file {
	f := &file{File: asmgen.NewFile("quant", "go run ./asm", "amd64 && !purego"), bytes: map[uint8]asmgen.Mem{}}
	var odd, even, words, right []byte
	for i := range 64 {
		odd, even = append(odd, byte(2*i+1)), append(even, byte(2*i))
		right = append(right, byte(i/32*32))
		if i < 32 {
			words = append(words, byte(2*i+1), 0)
		}
	}
	f.odd, f.even, f.highWords, f.rightBlock = f.Data("odd", odd), f.Data("even", even), f.Data("highWords", words), f.Data("rightBlock", right)
	var rounding, significands []byte
	for _, mantissa := range []int{3, 2} {
		for m := range 128 {
			step := math.Ldexp(1, 7-mantissa)
			rounding = append(rounding, byte(math.RoundToEven(float64(m)/step)-math.Floor(float64(m)/step)))
		}
	}
	for k := 1; k <= 8; k++ {
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
