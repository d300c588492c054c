// Package mx holds quantized matrices, whose elements of 8 or fewer bits share scales in blocks. It
// quantizes FP32 and BF16 matrices and computes the three products of a linear layer on them.
//
// A [Format] describes the elements, blocks and scales of such a matrix. The formats of OCP
// Microscaling have blocks of 32 elements and a power of two as scale. Kernels do most of their
// work. Any other format is decoded to BF16 or FP32 before it is multiplied. NVFP4 and FP8 in
// blocks of 128 are exact in BF16 without their outer scales, which multiply the sums.
//
// A [Cast] adds to a format how elements are rounded: to nearest, or at random by [Draws]. A [Sum]
// says how products add.
//
// A [Tensor] is a quantized matrix: its codes, its scales and the [Direction] of its blocks.
// [Quantize] fills it. [MatMul], [Dgrad] and [Wgrad] multiply two of them. The grouped products do
// the same for the experts of an MoE layer.
//
// The blocks of an operand always run along the dimension that the product contracts. Training
// therefore needs each matrix in both directions: along rows for one product and along columns for
// another (see [QuantizeBoth]).
//
// Sources: OCP Microscaling Formats (MX) Specification v1.0; for the scale modes and corner cases,
// PyTorch's torchao; for NVFP4, NVIDIA's Transformer Engine; for FP8 in blocks of 128, DeepSeek's
// TileKernels.
package mx
