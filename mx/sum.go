package mx

import "fmt"

// Sum says how the products of elements are added up. Its methods are the products of matmul.go.
type Sum uint8

// The sums.
const (
	// SumFP32 adds in FP32, on the fastest kernels. The order of the terms depends on the shape and
	// the instruction tier.
	SumFP32 Sum = iota
	// SumExact adds in FP64 and rounds the total to FP32. A product of NVFP4 has one result on
	// every tier and architecture, whatever the order of its terms: each is a multiple of 2^-20
	// below 2^27, so that FP64 holds sums of up to 2^26 of them exactly. Other formats are added in
	// order of increasing k.
	SumExact
	// SumH100 and SumB200 have the bits of cuBLAS on an H100 and a B200, for the formats that their
	// tensor cores multiply: see Sum.Multiplies and package tensorcore. SumH100 promotes sums of
	// FP8 to FP32 every 128 elements. SumH100NoPromotion does not.
	SumH100
	SumH100NoPromotion
	SumB200
)

var sumNames = [...]string{SumFP32: "fp32", SumExact: "exact", SumH100: "h100", SumH100NoPromotion: "h100-nopromotion", SumB200: "b200"}

// Sums lists every sum.
func Sums() []Sum { return []Sum{SumFP32, SumExact, SumH100, SumH100NoPromotion, SumB200} }

// OfGPU says whether the sum is that of a GPU's tensor cores.
func (s Sum) OfGPU() bool { return s >= SumH100 }

// ParseSum returns the sum that String names.
func ParseSum(name string) (Sum, error) {
	for _, s := range Sums() {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is not a way to add: use one of %v", name, Sums())
}

// String returns the name of the sum.
func (s Sum) String() string {
	if int(s) >= len(sumNames) {
		return fmt.Sprintf("Sum(%d)", uint8(s))
	}
	return sumNames[s]
}
