// Package mx holds the OCP Microscaling formats: matrices of elements of 8 or fewer bits in which every block of 32
// shares one power-of-two scale, their quantisation from FP32 and BF16, and the three products of a linear layer on them.
//
// Every quantised operand has its blocks along the dimension that the product contracts, so training needs each matrix
// in both directions: along rows for one product, along columns for another (see QuantizeBoth).
//
// Sources: OCP Microscaling Formats (MX) Specification v1.0; for the scale modes and corner cases, PyTorch's torchao.
package mx

// BlockSize is the number of elements that share a scale. The last block of a row, column or group may hold fewer; it is
// quantised as if zeros filled it up.
const BlockSize = 32
