//go:build amd64 && !purego

package gemm

// The families of amd64 and which of them each tier uses.

import (
	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

var (
	bf16AVX512 = family{
		rows: 12, columns: 32, masked: true, rounds: true, adds: true, runSteps: runSteps, across: &acrossForAVX512,
		tiles:   []func(*tile){nil, bf16AVX512Tiles1, bf16AVX512Tiles2, bf16AVX512Tiles3, bf16AVX512Tiles4, bf16AVX512Tiles5, bf16AVX512Tiles6, bf16AVX512Tiles7, bf16AVX512Tiles8, bf16AVX512Tiles9, bf16AVX512Tiles10, bf16AVX512Tiles11, bf16AVX512Tiles12},
		packing: packing{elem: 2, rows: packer{16, packRowsAVX512, interleave16AVX512}, columns: packer{16, packRowsAVX512, interleave32AVX512}},
	}
	bf16SplitAVX512 = family{
		rows: 12, columns: 32, masked: true, adds: true, runSteps: runSteps, tiles: fp32AVX512.tiles,
		packing: packing{elem: 2, split: true, rows: packer{16, packRowsSplitAVX512, widen16AVX512}, columns: packer{16, packRowsSplitAVX512, widen32AVX512}},
	}
	fp32AVX512 = family{
		rows: 12, columns: 32, masked: true, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX512Tiles1, fp32AVX512Tiles2, fp32AVX512Tiles3, fp32AVX512Tiles4, fp32AVX512Tiles5, fp32AVX512Tiles6, fp32AVX512Tiles7, fp32AVX512Tiles8, fp32AVX512Tiles9, fp32AVX512Tiles10, fp32AVX512Tiles11, fp32AVX512Tiles12},
		packing: packing{elem: 4, rows: packer{16, packRowsAVX512, copy16AVX512}, columns: packer{16, packRowsAVX512, copy32AVX512}},
	}
	bf16SplitAVX2 = family{
		rows: 6, columns: 16, adds: true, runSteps: runSteps, tiles: fp32AVX2.tiles, across: &acrossForAVX2,
		packing: packing{elem: 2, split: true, rows: packer{8, alongSplitAVX2, acrossSplitAVX2}, columns: packer{8, alongSplitAVX2, acrossSplitAVX2}},
	}
	fp32AVX2 = family{
		rows: 6, columns: 16, adds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX2Tiles1, fp32AVX2Tiles2, fp32AVX2Tiles3, fp32AVX2Tiles4, fp32AVX2Tiles5, fp32AVX2Tiles6},
		packing: packing{elem: 4, rows: packer{8, alongAVX2, acrossAVX2}, columns: packer{8, alongAVX2, acrossAVX2}},
	}
)

// kernelsOf gives what a tier uses; the CPU must have the tier.
func kernelsOf(t cpu.Tier) *kernels {
	switch t {
	case cpu.AMX:
		return wideKernels(&bf16AMX, peakBF16AMX, fewForAMX)
	case cpu.AVX512BF16:
		if cpuid.CPU.VendorID == cpuid.Intel {
			// There VDPBF16PS starts once in two cycles, FP32 multiply-adds twice a cycle: the same bits at twice the speed.
			return wideKernels(&bf16SplitAVX512, peakFP32AVX512, few)
		}
		return wideKernels(&bf16AVX512, peakBF16AVX512, few)
	case cpu.AVX512:
		if bytesAVX512() {
			return narrowKernels(&bf16SplitAVX512, &fp32AVX512, &int8AVX512, peakFP32AVX512, peakInt8AVX512)
		}
		return narrowKernels(&bf16SplitAVX512, &fp32AVX512, nil, peakFP32AVX512, nil)
	case cpu.AVX2:
		return narrowKernels(&bf16SplitAVX2, &fp32AVX2, &int8AVX2, peakFP32AVX2, peakInt8AVX2)
	}
	return &genericKernels
}

// way puts a·bᵀ into sum in FP32 or, if out is not empty, computes out = a·bᵀ in BF16; inexact is as of family.multiply.
type way func(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay)

// bf16By has products of BF16 computed that way.
func (ks *kernels) bf16By(multiply way) {
	ks.bf16 = func(s *Scratch, c, a, b View, m into) {
		multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
	}
	ks.bf16Rounded = func(s *Scratch, c, a, b View) {
		multiply(s, View{}, c, operand{View: a}, operand{View: b.transposed()}, into{}, nil)
	}
}

// inPlace is family.product but for few rows, where the kernels that of gives for b take b as it lies.
func (f *family) inPlace(few func(rows, k int) bool, of func(b operand) *directFamily) way {
	return func(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay) {
		if few(a.Rows, m.length(a.Cols)) && a.direct(b) {
			of(b).multiply(s, sum, out, a, b, m, inexact)
		} else {
			f.product(s, sum, out, a, b, m, inexact)
		}
	}
}

func familyKernels(bf16, fp32 *family, peakBF16, peakFP32 func(rounds int) float64) *kernels {
	ks := &kernels{
		fp32: func(s *Scratch, c, a, b View, m into) {
			fp32.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
		},
		panels:   func(s *Scratch, to *buffer, b View) int { return bf16.pack(s, to, operand{View: b.transposed()}) },
		peakBF16: peakBF16,
		peakFP32: peakFP32,
	}
	ks.bf16By(bf16.product)
	return ks
}

// bytesAVX512 says whether bytes can be permuted and multiplied.
func bytesAVX512() bool { return cpuid.CPU.Supports(cpuid.AVX512VBMI, cpuid.AVX512VNNI) }

// narrowKernels adds to families that know FP32 only ways for codes. integers and its peak may be nil.
func narrowKernels(bf16, fp32, integers *family, peak, peakInt8 func(rounds int) float64) *kernels {
	packed := familyKernels(bf16, fp32, peak, peak)
	packed.peakInt8 = peakInt8
	ks := *packed
	few := fewForAVX2
	ks.packed, ks.few = packed, few
	multiply := bf16.inPlace(few, directAVX2Of)
	ks.bf16By(multiply)
	asIntegers := func(a, b Scaled) (x, y operand, ok bool) {
		x, y, ok = int8Operands(a, b)
		return x, y, ok && integers != nil
	}
	ks.scaledPanels = func(s *Scratch, to *buffer, b Scaled) int {
		if o, _, ok := asIntegers(b, b); ok {
			return integers.pack(s, to, o)
		}
		if o, ok := decodersAVX2.operand(b); ok && b.Format != INT8 {
			return bf16.pack(s, to, o)
		}
		return 0
	}
	ks.scaled = func(s *Scratch, sum, out View, a, b Scaled, m into) {
		k := m.length(a.Codes.Cols)
		few, slow := few(a.Codes.Rows, k), ks.of(a.Codes.Rows, k).slow(s)
		if x, y, ok := asIntegers(a, b); ok {
			integers.multiplyInt8(s, sum, out, x, y, m, slow)
		} else if x, y, ok := decodersAVX2.decodable(a, b, few); ok {
			if !few || !x.direct(y) {
				slow = packed.slow(s) // adds up as products that are not direct
			}
			multiply(s, sum, out, x, y, m, slow)
		} else {
			slow(sum, out, a, b, m)
		}
	}
	return &ks
}

// few is kernels.few where b in place pays: up to some rows more than arithmetic needs to catch up with reading, if sums are so long
// that adding up the vectors of each is little work.
func few(rows, k int) bool { return rows <= max(12, min(k/16, 64)) }

// fewForAVX2 holds where packing b costs more than making FP32 of it for every panel of a.
func fewForAVX2(rows, _ int) bool { return rows <= 16 }

// fewForAMX holds where packing b for tiles costs more than they save.
func fewForAMX(rows, _ int) bool { return rows <= 8 }

// wideKernels adds to a family for BF16 a way for few rows and, if bytes can be permuted and multiplied, ways for codes.
func wideKernels(f *family, peak func(rounds int) float64, few func(rows, k int) bool) *kernels {
	packed := familyKernels(f, &fp32AVX512, peak, peakFP32AVX512)
	packed.tiles = f.packing.tiles
	ks := *packed
	ks.packed, ks.few = packed, few
	multiply := f.inPlace(few, directAVX512Of)
	ks.bf16By(multiply)
	if !bytesAVX512() {
		return &ks
	}
	integers := &int8AVX512
	ks.peakInt8 = peakInt8AVX512
	if f.packing.tiles {
		integers, ks.peakInt8 = &int8AMX, peakInt8AMX
	}
	ks.scaledPanels = func(s *Scratch, to *buffer, b Scaled) int {
		if o, _, ok := int8Operands(b, b); ok {
			return integers.pack(s, to, o)
		}
		if o, ok := decodersAVX512.operand(b); ok && b.Format != INT8 {
			return f.pack(s, to, o)
		}
		return 0
	}
	ks.scaled = func(s *Scratch, sum, out View, a, b Scaled, m into) {
		k := m.length(a.Codes.Cols)
		few := few(a.Codes.Rows, k)
		slow := ks.of(a.Codes.Rows, k).slow(s)
		x, y, ok := int8Operands(a, b)
		if ok {
			integers.multiplyInt8(s, sum, out, x, y, m, slow)
		} else if x, y, ok = decodersAVX512.decodable(a, b, few); ok {
			if f.packing.tiles && !few {
				slow = bySpan(s, f.exceptions(s, decodableMany, slow))
			}
			multiply(s, sum, out, x, y, m, slow)
		} else {
			slow(sum, out, a, b, m)
		}
	}
	return &ks
}

// A peak loop's FLOPs are rounds times instructions times lanes times 2 for each multiply-add.

func peakBF16AVX512(rounds int) float64 {
	bf16AVX512Peak(rounds)
	return float64(rounds) * 24 * 32 * 2
}

func peakInt8AVX512(rounds int) float64 {
	int8AVX512Peak(rounds)
	return float64(rounds) * 24 * 64 * 2
}

func peakFP32AVX512(rounds int) float64 {
	fp32AVX512Peak(rounds)
	return float64(rounds) * 24 * 16 * 2
}

func peakFP32AVX2(rounds int) float64 {
	fp32AVX2Peak(rounds)
	return float64(rounds) * 12 * 8 * 2
}
