//go:build amd64 && !purego

package vec

// The AVX2 tier. The program in asm generates the assembly.

var avx2 = kernels{
	widen:           widenAVX2,
	round:           roundAVX2,
	add:             addAVX2,
	addScaled:       addScaledAVX2,
	scale:           scaleAVX2,
	sumBlocks:       sumBlocksAVX2,
	mulScaled:       mulScaledAVX2,
	normWeightGrad:  normWeightGradAVX2,
	normInputGrad:   normInputGradAVX2,
	rotate:          rotateAVX2,
	sigmoid:         sigmoidAVX2,
	swiGLU:          swiGLUAVX2,
	swiGLUBackward:  swiGLUBackwardAVX2,
	expSum:          expSumAVX2,
	softmaxBackward: softmaxBackwardAVX2,
	dot:             dotAVX2,
	sumSquares:      sumSquaresAVX2,
	max:             maxAVX2,
	adamW:           adamWAVX2,
	adamWStreaming:  adamWStreamingAVX2,

	add16:             add16AVX2,
	addScaled16:       addScaled16AVX2,
	scale16:           scale16AVX2,
	sumBlocks16:       sumBlocks16AVX2,
	split:             splitAVX2,
	mulScaled16:       mulScaled16AVX2,
	normWeightGrad16:  normWeightGrad16AVX2,
	normInputGrad16:   normInputGrad16AVX2,
	rotate16:          rotate16AVX2,
	swiGLU16:          swiGLU16AVX2,
	swiGLUBackward16:  swiGLUBackward16AVX2,
	expSum16:          expSum16AVX2,
	softmaxBackward16: softmaxBackward16AVX2,
	dot16:             dot16AVX2,
	squares16:         squares16AVX2,
	adamW16:           adamW16AVX2,
	adamWStreaming16:  adamWStreaming16AVX2,
}

//go:noescape
func widenAVX2(dst []float32, src []uint16)

//go:noescape
func roundAVX2(dst []uint16, src []float32)

//go:noescape
func addAVX2(dst, x, y []float32)

//go:noescape
func addScaledAVX2(dst []float32, a float32, x []float32)

//go:noescape
func scaleAVX2(dst []float32, a float32, x []float32)

//go:noescape
func sumBlocksAVX2(dst, x []float32, blocks, stride int)

//go:noescape
func mulScaledAVX2(dst []float32, a float32, x, y []float32)

//go:noescape
func normWeightGradAVX2(dw []float32, a float32, dy, x, w []float32) float32

//go:noescape
func normInputGradAVX2(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32)

//go:noescape
func rotateAVX2(x []float32, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func sigmoidAVX2(dst, x []float32)

//go:noescape
func swiGLUAVX2(h, gate, up []float32)

//go:noescape
func swiGLUBackwardAVX2(dgate, dup, dh, gate, up []float32)

//go:noescape
func expSumAVX2(dst []float32, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackwardAVX2(p, ds []float32, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dotAVX2(x, y []float32) float32

//go:noescape
func sumSquaresAVX2(x []float32) float64

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func adamWAVX2(dst, src AdamWState, grad []float32, c AdamWStep)

//go:noescape
func adamWStreamingAVX2(dst, src AdamWState, grad []float32, c AdamWStep)

//go:noescape
func add16AVX2(dst, x, y []uint16)

//go:noescape
func addScaled16AVX2(dst []float32, a float32, x []uint16)

//go:noescape
func scale16AVX2(dst []uint16, a float32, x []float32)

//go:noescape
func sumBlocks16AVX2(dst, x []uint16, blocks, stride int)

//go:noescape
func splitAVX2(dst, w []float32)

//go:noescape
func mulScaled16AVX2(dst []uint16, a float32, x []uint16, y []float32)

//go:noescape
func normWeightGrad16AVX2(dw []float32, a float32, dy, x []uint16, w []float32) float32

//go:noescape
func normInputGrad16AVX2(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16)

//go:noescape
func rotate16AVX2(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func swiGLU16AVX2(h, gate, up []uint16)

//go:noescape
func swiGLUBackward16AVX2(dgate, dup, dh, gate, up []uint16)

//go:noescape
func expSum16AVX2(dst []uint16, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackward16AVX2(p, ds []uint16, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dot16AVX2(x, y []uint16) float32

//go:noescape
func squares16AVX2(x []uint16) float32

//go:noescape
func adamW16AVX2(dst, src AdamWStateBF16, grad []float32, c AdamWStep)

//go:noescape
func adamWStreaming16AVX2(dst, src AdamWStateBF16, grad []float32, c AdamWStep)
