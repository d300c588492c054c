// Package tensorcore multiplies matrices bit by bit as the tensor cores of NVIDIA's GPUs do.
//
// # Rules
//
// A tensor core adds a block of products and its accumulator as one fixed-point sum ([Unit.Add]):
//
//  1. The exponent of a product is the sum of its elements' exponents. It is not normalized: the
//     significand is in [1, 4). A subnormal element has the exponent of its format's smallest
//     normal number. A product with a factor of zero takes no part in the next step.
//  2. M is the largest exponent of the products and of the accumulator, and at least -133.
//  3. Every term is cut toward zero to F fractional bits below 2^M.
//  4. The sum of these is exact. It is cut toward zero to the mantissa of the result. An exact zero
//     is +0.
//  5. The result is the accumulator of the next block, in ascending order of k ([Unit.Chain]).
//
// A NaN operand, zero times infinity, and infinities of both signs give 0x7fffffff. What exceeds
// FP32 is infinite.
//
//	unit            terms   F  mantissa  compared with the chip
//	HopperBF16         16  25        23  whole products; also FP16
//	HopperFP8          32  13        13  whole products, E4M3 and E5M2 in any mix
//	BlackwellBF16      16  25        23  single blocks; also FP16
//	BlackwellFP8       32  25        23  no: a published model
//	BlackwellFP4       64  35        23  no: a published model
//
// BlackwellFP8 also adds MXFP8. The exponents of the two scales are added to those of products.
// BlackwellFP4 adds groups of 16 (NVFP4) or 32 (MXFP4) products of codes exactly and multiplies
// them by both scales. Groups are the terms of a block, with the exponents of their scales.
//
// A [Plan] says how cuBLAS makes a whole product of blocks: [H100FP8] adds the sum of every 128
// elements to an FP32 total. docs/gpu-sums.md has the measurements and sources.
//
// # Kernels
//
// [Job.Multiply] has the bits of [Plan.Dot], on every instruction tier and for any division of the
// result. Its kernels (_asm/chain.go) compute a lane per element of the result:
//
//   - M is the largest of sums of exponents, in lanes of 16 bits. Packing finds the exponents.
//   - A product is exact in FP32. Multiplied by 2^(F-M), it is a term in units of the last bit that
//     is kept. Conversion to an integer cuts it toward zero.
//   - The sum of 16 terms fits into 32 bits. MXCSR makes its conversion to FP32 cut toward zero.
//
// A lane is left to plain Go if M is not in [-100, 100], unless all is zero, if an operand is
// infinite or NaN, or if the sum with the accumulator exceeds 32 bits. The kernel then stops before
// that block.
//
// BlackwellFP4 runs in plain Go.
package tensorcore
