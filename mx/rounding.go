package mx

// Stochastic rounding, and the random numbers for it.

import (
	"fmt"

	"spmoe/mx/internal/nvfp4"
	"spmoe/mx/internal/philox"
	"spmoe/mx/internal/quant"
)

// Rounding is the rule that chooses between the two codes next to a number.
type Rounding uint8

// The roundings.
const (
	Nearest Rounding = iota // ties go to the even code
	// Stochastic chooses the upper code with a probability equal to the number's distance from the
	// lower one, in steps of the grid. The expected value is the number. The probability is a
	// multiple of 2^-16.
	Stochastic
)

// Roundings lists every rounding.
func Roundings() []Rounding { return []Rounding{Nearest, Stochastic} }

// ParseRounding returns the rounding that String names.
func ParseRounding(name string) (Rounding, error) {
	for _, r := range Roundings() {
		if r.String() == name {
			return r, nil
		}
	}
	return 0, fmt.Errorf("%q is not a rounding: use one of %v", name, Roundings())
}

// String returns "nearest" or "stochastic".
func (r Rounding) String() string {
	if r == Stochastic {
		return "stochastic"
	}
	return "nearest"
}

// Draws names the random numbers of one quantization. The number of an element is a function of
// these fields and of the element's row and column alone. It therefore depends neither on the
// number of threads nor on how ranks divide the rows.
//
// The generator is Philox4x32-10 with the key {Seed, Step} and the counter {column/8, row modulo
// 2^32, row/2^32, Stream}. An element takes 16 of its 128 bits.
type Draws struct {
	Seed, Step uint32
	// Stream tells the quantizations of a step apart: which layer, which operand.
	Stream uint32
	// Rows holds the index of each row in the whole matrix, which may be spread over ranks. If it
	// is nil, row r has index First + r. Two rows of one stream must not share an index.
	Rows  []uint64
	First uint64
}

// fill sets out to the 16-bit numbers of a row's columns from col on, a multiple of 8. The length
// of out is a multiple of nvfp4.DrawUnit.
func (d *Draws) fill(out []uint16, row, col int) {
	index := d.First + uint64(row)
	if d.Rows != nil {
		index = d.Rows[row]
	}
	key := [2]uint32{d.Seed, d.Step}
	counter := [4]uint32{uint32(col / 8), uint32(index), uint32(index >> 32), d.Stream}
	if kernels == quant.Tiles {
		nvfp4.Draw(out, &key, &counter)
		return
	}
	for c := 0; c < len(out); c += 8 {
		for i, word := range philox.Block(key, counter) {
			out[c+2*i], out[c+2*i+1] = uint16(word), uint16(word>>16)
		}
		counter[0]++
	}
}
