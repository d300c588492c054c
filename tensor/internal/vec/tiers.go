package vec

// The kernels of one tier, and those in plain Go. vec_amd64.go and vec_other.go have the table of
// kernels by instruction tier.

import "spmoe/tensor/cpu"

// active is the set in use. It is chosen once, and only tests replace it.
var active = cpu.Choose("vectors", table)

// kernels are the loops of the exported functions, for slices of equal length up to chunk.
type kernels struct {
	widen           func(dst []float32, src []uint16)
	round           func(dst []uint16, src []float32)
	add             func(dst, x, y []float32)
	addScaled       func(dst []float32, a float32, x []float32)
	scale           func(dst []float32, a float32, x []float32)
	sumBlocks       func(dst, x []float32, blocks, stride int)
	mulScaled       func(dst []float32, a float32, x, y []float32)
	normWeightGrad  func(dw []float32, a float32, dy, x, w []float32) float32
	normInputGrad   func(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32)
	rotate          func(x []float32, stride, count, pairs int, cos, sin []float32, sign float32)
	sigmoid         func(dst, x []float32)
	swiGLU          func(h, gate, up []float32)
	swiGLUBackward  func(dgate, dup, dh, gate, up []float32)
	expSum          func(dst []float32, a float32, x []float32, shift float32) float32
	softmaxBackward func(p, ds []float32, a float32, s, dp []float32, lse, delta float32)
	dot             func(x, y []float32) float32
	sumSquares      func(x []float32) float64
	max             func(x []float32) float32
	adamW           func(dst, src AdamWState, grad []float32, c AdamWStep)
	adamWStreaming  func(dst, src AdamWState, grad []float32, c AdamWStep)

	// The kernels of the functions whose names end in BF16.
	add16             func(dst, x, y []uint16)
	addScaled16       func(dst []float32, a float32, x []uint16)
	scale16           func(dst []uint16, a float32, x []float32)
	sumBlocks16       func(dst, x []uint16, blocks, stride int)
	split             func(dst, w []float32)
	mulScaled16       func(dst []uint16, a float32, x []uint16, y []float32)
	normWeightGrad16  func(dw []float32, a float32, dy, x []uint16, w []float32) float32
	normInputGrad16   func(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16)
	rotate16          func(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32)
	swiGLU16          func(h, gate, up []uint16)
	swiGLUBackward16  func(dgate, dup, dh, gate, up []uint16)
	expSum16          func(dst []uint16, a float32, x []float32, shift float32) float32
	softmaxBackward16 func(p, ds []uint16, a float32, s, dp []float32, lse, delta float32)
	dot16             func(x, y []uint16) float32
	squares16         func(x []uint16) float32
	adamW16           func(dst, src AdamWStateBF16, grad []float32, c AdamWStep)
	adamWStreaming16  func(dst, src AdamWStateBF16, grad []float32, c AdamWStep)
}

var generic = kernels{
	widen:           widenGeneric,
	round:           roundGeneric,
	add:             addGeneric,
	addScaled:       addScaledGeneric,
	scale:           scaleGeneric,
	sumBlocks:       sumBlocksGeneric,
	mulScaled:       mulScaledGeneric,
	normWeightGrad:  normWeightGradGeneric,
	normInputGrad:   normInputGradGeneric,
	rotate:          rotateGeneric,
	sigmoid:         sigmoidGeneric,
	swiGLU:          swiGLUGeneric,
	swiGLUBackward:  swiGLUBackwardGeneric,
	expSum:          expSumGeneric,
	softmaxBackward: softmaxBackwardGeneric,
	dot:             dotGeneric,
	sumSquares:      sumSquaresGeneric,
	max:             maxGeneric,
	adamW:           adamWGeneric,
	adamWStreaming:  adamWGeneric,

	add16:             add16Generic,
	addScaled16:       addScaled16Generic,
	scale16:           scale16Generic,
	sumBlocks16:       sumBlocks16Generic,
	split:             splitGeneric,
	mulScaled16:       mulScaled16Generic,
	normWeightGrad16:  normWeightGrad16Generic,
	normInputGrad16:   normInputGrad16Generic,
	rotate16:          rotate16Generic,
	swiGLU16:          swiGLU16Generic,
	swiGLUBackward16:  swiGLUBackward16Generic,
	expSum16:          expSum16Generic,
	softmaxBackward16: softmaxBackward16Generic,
	dot16:             dot16Generic,
	squares16:         squares16Generic,
	adamW16:           adamW16Generic,
	adamWStreaming16:  adamW16Generic,
}
