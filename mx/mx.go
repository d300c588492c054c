// Package mx holds quantized matrices, whose elements of 8 or fewer bits share scales in blocks. It
// quantizes FP32 and BF16 matrices and computes the three products of a linear layer on them.
//
// A [Format] describes the elements, blocks and scales of such a matrix. The formats of OCP
// Microscaling have blocks of 32 elements and a power of two as scale. Kernels do most of their
// work. Any other format is quantized in plain Go and decoded to BF16 or FP32 before it is
// multiplied. That is slower, and as exact as the format.
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
// PyTorch's torchao.
package mx
