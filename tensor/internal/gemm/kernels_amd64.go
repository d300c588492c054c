//go:build amd64 && !purego

package gemm

// The families of amd64 and which of them each tier uses.

import (
	"github.com/klauspost/cpuid/v2"

	"spmoe/tensor/cpu"
)

var (
	bf16AVX512 = family{
		rows: 12, columns: 32, masked: true, rounds: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, bf16AVX512Tiles1, bf16AVX512Tiles2, bf16AVX512Tiles3, bf16AVX512Tiles4, bf16AVX512Tiles5, bf16AVX512Tiles6, bf16AVX512Tiles7, bf16AVX512Tiles8, bf16AVX512Tiles9, bf16AVX512Tiles10, bf16AVX512Tiles11, bf16AVX512Tiles12},
		packing: packing{elem: 2, group: 16, along: packRowsAVX512, across: interleave16AVX512, acrossPanel: interleave32AVX512},
	}
	bf16SplitAVX512 = family{
		rows: 12, columns: 32, masked: true, runSteps: runSteps, tiles: fp32AVX512.tiles,
		packing: packing{elem: 2, split: true, group: 16, along: packRowsSplitAVX512, across: widen16AVX512, acrossPanel: widen32AVX512},
	}
	fp32AVX512 = family{
		rows: 12, columns: 32, masked: true, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX512Tiles1, fp32AVX512Tiles2, fp32AVX512Tiles3, fp32AVX512Tiles4, fp32AVX512Tiles5, fp32AVX512Tiles6, fp32AVX512Tiles7, fp32AVX512Tiles8, fp32AVX512Tiles9, fp32AVX512Tiles10, fp32AVX512Tiles11, fp32AVX512Tiles12},
		packing: packing{elem: 4, group: 16, along: packRowsAVX512, across: copy16AVX512, acrossPanel: copy32AVX512},
	}
	bf16SplitAVX2 = family{
		rows: 6, columns: 16, runSteps: runSteps, tiles: fp32AVX2.tiles,
		packing: packing{elem: 2, split: true, group: 8, along: alongSplitAVX2, across: acrossSplitAVX2, acrossPanel: acrossSplitAVX2},
	}
	fp32AVX2 = family{
		rows: 6, columns: 16, runSteps: runSteps,
		tiles:   []func(*tile){nil, fp32AVX2Tiles1, fp32AVX2Tiles2, fp32AVX2Tiles3, fp32AVX2Tiles4, fp32AVX2Tiles5, fp32AVX2Tiles6},
		packing: packing{elem: 4, group: 8, along: alongAVX2, across: acrossAVX2, acrossPanel: acrossAVX2},
	}
)

// kernelsOf gives what a tier uses; the CPU must have the tier.
func kernelsOf(t cpu.Tier) *kernels {
	switch t {
	case cpu.AVX512BF16:
		return kernelsAVX512BF16(cpuid.CPU.Supports(cpuid.AVX512VBMI, cpuid.AVX512VNNI), cpuid.CPU.VendorID == cpuid.Intel)
	case cpu.AVX512:
		return familyKernels(&bf16SplitAVX512, &fp32AVX512, peakFP32AVX512, peakFP32AVX512)
	case cpu.AVX2:
		return familyKernels(&bf16SplitAVX2, &fp32AVX2, peakFP32AVX2, peakFP32AVX2)
	}
	return &genericKernels
}

func familyKernels(bf16, fp32 *family, peakBF16, peakFP32 func(rounds int) float64) *kernels {
	return &kernels{
		bf16: func(s *Scratch, c, a, b View, accumulate bool) {
			bf16.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, accumulate, nil)
		},
		bf16Rounded: func(s *Scratch, c, a, b View) {
			bf16.multiply(s, View{}, c, operand{View: a}, operand{View: b.transposed()}, false, nil)
		},
		fp32: func(s *Scratch, c, a, b View, accumulate bool) {
			fp32.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, accumulate, nil)
		},
		panels:   func(s *Scratch, to *buffer, b View) int { return bf16.pack(s, to, operand{View: b.transposed()}) },
		peakBF16: peakBF16,
		peakFP32: peakFP32,
	}
}

// kernelsAVX512BF16 adds a way for few rows and, if bytes can be permuted and multiplied, ways for codes. Where VDPBF16PS is slow,
// as on Intel's CPUs, which start one every two cycles but two FP32 multiply-adds a cycle, BF16 products run in FP32: the same
// bits at twice the speed.
func kernelsAVX512BF16(bytes, slowDot bool) *kernels {
	products, peak := &bf16AVX512, peakBF16AVX512
	if slowDot {
		products, peak = &bf16SplitAVX512, peakFP32AVX512
	}
	packed := familyKernels(products, &fp32AVX512, peak, peakFP32AVX512)
	ks := *packed
	ks.packed = packed
	ks.bf16 = func(s *Scratch, c, a, b View, accumulate bool) {
		multiplyAVX512(products, s, c, View{}, operand{View: a}, operand{View: b.transposed()}, accumulate, nil)
	}
	ks.bf16Rounded = func(s *Scratch, c, a, b View) {
		multiplyAVX512(products, s, View{}, c, operand{View: a}, operand{View: b.transposed()}, false, nil)
	}
	if bytes {
		ks.scaledPanels = packCodes
		ks.scaled = func(s *Scratch, sum, out View, a, b Scaled, accumulate bool) {
			packed := ks.of(a.Codes.Rows, a.Codes.Cols)
			slow := func(sum, out View, a, b Scaled, accumulate bool) {
				packed.multiplyBlocks(s, sum, out, a, b, accumulate, wideRows)
			}
			x, y, ok := int8Operands(a, b)
			if ok {
				multiplyInt8(s, sum, out, x, y, accumulate, slow)
			} else if x, y, ok = floatOperands(a, b); ok {
				multiplyAVX512(&bf16AVX512, s, sum, out, x, y, accumulate, slow)
			} else {
				slow(sum, out, a, b, accumulate)
			}
		}
	}
	return &ks
}

func packCodes(s *Scratch, to *buffer, b Scaled) int {
	if o, _, ok := int8Operands(b, b); ok {
		return int8AVX512.pack(s, to, o)
	}
	if o, ok := floatOperand(b); ok {
		return bf16AVX512.pack(s, to, o)
	}
	return 0
}

// multiplyAVX512 is f.multiply with a way for few rows.
func multiplyAVX512(f *family, s *Scratch, sum, out View, a, b operand, accumulate bool, inexact slowWay) {
	if a.direct(b) {
		multiplyDirect(s, sum, out, a, b, accumulate, inexact)
	} else {
		f.multiply(s, sum, out, a, b, accumulate, inexact)
	}
}

// A peak loop's FLOPs are rounds times instructions times lanes times 2 for each multiply-add.

func peakBF16AVX512(rounds int) float64 {
	bf16AVX512Peak(rounds)
	return float64(rounds) * 24 * 32 * 2
}

func peakFP32AVX512(rounds int) float64 {
	fp32AVX512Peak(rounds)
	return float64(rounds) * 24 * 16 * 2
}

func peakFP32AVX2(rounds int) float64 {
	fp32AVX2Peak(rounds)
	return float64(rounds) * 12 * 8 * 2
}
