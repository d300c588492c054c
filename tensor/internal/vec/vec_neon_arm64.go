//go:build arm64 && !purego

package vec

// The NEON tier. The program in asm generates the assembly. Stores do not bypass the caches.

var neon = kernels{
	widen:           widenNEON,
	round:           roundNEON,
	add:             addNEON,
	addScaled:       addScaledNEON,
	scale:           scaleNEON,
	sumBlocks:       sumBlocksNEON,
	mulScaled:       mulScaledNEON,
	normWeightGrad:  normWeightGradNEON,
	normInputGrad:   normInputGradNEON,
	rotate:          rotateNEON,
	sigmoid:         sigmoidNEON,
	swiGLU:          swiGLUNEON,
	swiGLUBackward:  swiGLUBackwardNEON,
	expSum:          expSumNEON,
	softmaxBackward: softmaxBackwardNEON,
	dot:             dotNEON,
	sumSquares:      sumSquaresNEON,
	max:             maxNEON,
	adamW:           adamWNEON,
	adamWStreaming:  adamWNEON,

	add16:             add16NEON,
	addScaled16:       addScaled16NEON,
	scale16:           scale16NEON,
	sumBlocks16:       sumBlocks16NEON,
	split:             splitNEON,
	mulScaled16:       mulScaled16NEON,
	normWeightGrad16:  normWeightGrad16NEON,
	normInputGrad16:   normInputGrad16NEON,
	rotate16:          rotate16NEON,
	swiGLU16:          swiGLU16NEON,
	swiGLUBackward16:  swiGLUBackward16NEON,
	expSum16:          expSum16NEON,
	softmaxBackward16: softmaxBackward16NEON,
	dot16:             dot16NEON,
	squares16:         squares16NEON,
	adamW16:           adamW16NEON,
	adamWStreaming16:  adamW16NEON,
}

//go:noescape
func widenNEON(dst []float32, src []uint16)

//go:noescape
func roundNEON(dst []uint16, src []float32)

//go:noescape
func addNEON(dst, x, y []float32)

//go:noescape
func addScaledNEON(dst []float32, a float32, x []float32)

//go:noescape
func scaleNEON(dst []float32, a float32, x []float32)

//go:noescape
func sumBlocksNEON(dst, x []float32, blocks, stride int)

//go:noescape
func mulScaledNEON(dst []float32, a float32, x, y []float32)

//go:noescape
func normWeightGradNEON(dw []float32, a float32, dy, x, w []float32) float32

//go:noescape
func normInputGradNEON(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32)

//go:noescape
func rotateNEON(x []float32, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func sigmoidNEON(dst, x []float32)

//go:noescape
func swiGLUNEON(h, gate, up []float32)

//go:noescape
func swiGLUBackwardNEON(dgate, dup, dh, gate, up []float32)

//go:noescape
func expSumNEON(dst []float32, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackwardNEON(p, ds []float32, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dotNEON(x, y []float32) float32

//go:noescape
func sumSquaresNEON(x []float32) float64

//go:noescape
func maxNEON(x []float32) float32

//go:noescape
func adamWNEON(dst, src AdamWState, grad []float32, c AdamWStep)

//go:noescape
func add16NEON(dst, x, y []uint16)

//go:noescape
func addScaled16NEON(dst []float32, a float32, x []uint16)

//go:noescape
func scale16NEON(dst []uint16, a float32, x []float32)

//go:noescape
func sumBlocks16NEON(dst, x []uint16, blocks, stride int)

//go:noescape
func splitNEON(dst, w []float32)

//go:noescape
func mulScaled16NEON(dst []uint16, a float32, x []uint16, y []float32)

//go:noescape
func normWeightGrad16NEON(dw []float32, a float32, dy, x []uint16, w []float32) float32

//go:noescape
func normInputGrad16NEON(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16)

//go:noescape
func rotate16NEON(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func swiGLU16NEON(h, gate, up []uint16)

//go:noescape
func swiGLUBackward16NEON(dgate, dup, dh, gate, up []uint16)

//go:noescape
func expSum16NEON(dst []uint16, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackward16NEON(p, ds []uint16, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dot16NEON(x, y []uint16) float32

//go:noescape
func squares16NEON(x []uint16) float32

//go:noescape
func adamW16NEON(dst, src AdamWStateBF16, grad []float32, c AdamWStep)
