// Package mx holds quantized matrices, whose elements of 8 or fewer bits share scales in blocks:
// how they are made from FP32 and BF16, and the three products of a linear layer on them.
//
// A [Format] describes such a matrix: elements, blocks, scales. The formats of OCP Microscaling
// have blocks of 32 with a power of two for a scale, and kernels for most of their work. Any other
// format is quantized in plain Go, and decoded to BF16 or FP32 before it is multiplied: slower, and
// as exact as its description allows.
//
// Every quantized operand has its blocks along the dimension that the product contracts, so
// training needs each matrix in both directions: along rows for one product, along columns for
// another (see QuantizeBoth).
//
// Sources: OCP Microscaling Formats (MX) Specification v1.0; for the scale modes and corner cases,
// PyTorch's torchao.
package mx
