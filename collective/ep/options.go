package ep

// The options of an exchange: quantized transport and capacity.

import (
	"fmt"
	"math"
	"slices"

	"spmoe/mx"
)

// Wire is the format in which rows travel.
type Wire uint8

// The wires.
const (
	Plain Wire = iota // in the type of the activations
	// quantized by their sender: E4M3 codes in blocks of 32 along the row, scales by RCEIL; 33
	// bytes per 32 elements
	MXFP8
)

// wireCast is how senders quantize rows for the MXFP8 wire. Its blocks do not extend over rows.
var wireCast = mx.Cast{Format: mx.E4M3, Mode: mx.RCEIL}

// wireNames names the plain wire after the usual type of activations.
var wireNames = [...]string{Plain: "bf16", MXFP8: "mxfp8"}

// ParseWire returns the wire of a name.
func ParseWire(name string) (Wire, error) {
	if i := slices.Index(wireNames[:], name); i >= 0 {
		return Wire(i), nil
	}
	return Plain, fmt.Errorf("rows in %q cannot be exchanged: use bf16 (the type of the activations) or mxfp8", name)
}

// String returns the name: "mxfp8".
func (w Wire) String() string { return wireNames[w] }

// Options vary what an exchange moves. They must be the same on all ranks. With the zero Options
// every row moves unchanged.
type Options struct {
	Dispatch        Wire // of the rows that Dispatch sends; DispatchBackward's are Plain
	CombineBackward Wire // of the rows that CombineBackward sends; Combine's are Plain

	// Capacity bounds the rows that an expert accepts in one Dispatch, as a multiple of the mean
	// over all experts, rounded up; 0 is no limit. Rows are accepted in the order of source rank,
	// token and slot. If ranks hold consecutive pieces of a batch, this does not depend on the
	// number of ranks. A choice that is not accepted counts as masked from there on, which changes
	// what the model computes.
	Capacity float64
}

// validate checks the options for the exchange of this name.
func (o Options) validate(exchange string) error {
	if !(o.Capacity >= 0) || math.IsInf(o.Capacity, 1) {
		return fmt.Errorf("ep: the capacity is %v times the mean: give 0 (no limit) or more", o.Capacity)
	}
	if exchange != "onesided" && o != (Options{}) {
		return fmt.Errorf("ep: dispatch in %v, combine backward in %v and capacity %v need the onesided exchange, not %s",
			o.Dispatch, o.CombineBackward, o.Capacity, exchange)
	}
	return nil
}

// limit reduces counts [ranks, experts] of rows to those that the experts accept.
func (o Options) limit(counts []int32, experts int) {
	if o.Capacity == 0 {
		return
	}
	total := 0
	for _, n := range counts {
		total += int(n)
	}
	most := int32(min(math.Ceil(o.Capacity*float64(total)/float64(experts)), float64(total)))
	for e := range experts {
		left := most
		for i := e; i < len(counts); i += experts {
			counts[i] = min(counts[i], left)
			left -= counts[i]
		}
	}
}
