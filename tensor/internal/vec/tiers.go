package vec

// The table of kernels, one set for each instruction tier.

import "spmoe/tensor/cpu"

// active is the set in use, chosen once; only tests put another in its place.
var active = kernelsFor(cpu.Best())

// kernels are the loops behind the exported functions, for slices of equal length up to chunk.
type kernels struct {
	widen           func(dst []float32, src []uint16)
	round           func(dst []uint16, src []float32)
	add             func(dst, x, y []float32)
	addScaled       func(dst []float32, a float32, x []float32)
	scale           func(dst []float32, a float32, x []float32)
	mulScaled       func(dst []float32, a float32, x, y []float32)
	addMulScaled    func(dst []float32, a float32, x, y []float32)
	swiGLU          func(h, gate, up []float32)
	swiGLUBackward  func(dgate, dup, dh, gate, up []float32)
	softmaxBackward func(ds []float32, a, delta float32, p, dp []float32)
	dot             func(x, y []float32) float32
	sumSquares      func(x []float32) float64
	expSum          func(dst []float32, a float32, x []float32, shift float32) float32
	max             func(x []float32) float32
	finite          func(x []float32) bool
	adamW           func(master, m, v, grad []float32, c AdamWStep)
}

var generic = kernels{
	widen:           widenGeneric,
	round:           roundGeneric,
	add:             addGeneric,
	addScaled:       addScaledGeneric,
	scale:           scaleGeneric,
	mulScaled:       mulScaledGeneric,
	addMulScaled:    addMulScaledGeneric,
	swiGLU:          swiGLUGeneric,
	swiGLUBackward:  swiGLUBackwardGeneric,
	softmaxBackward: softmaxBackwardGeneric,
	dot:             dotGeneric,
	sumSquares:      sumSquaresGeneric,
	expSum:          expSumGeneric,
	max:             maxGeneric,
	finite:          finiteGeneric,
	adamW:           adamWGeneric,
}
