//go:build amd64 && !purego

package vec

// The AVX-512 tier. The program in asm generates the assembly.

var avx512 = kernels{
	widen:           widenAVX512,
	round:           roundAVX512,
	add:             addAVX512,
	addScaled:       addScaledAVX512,
	scale:           scaleAVX512,
	sumBlocks:       sumBlocksAVX512,
	mulScaled:       mulScaledAVX512,
	normWeightGrad:  normWeightGradAVX512,
	normInputGrad:   normInputGradAVX512,
	rotate:          rotateAVX512,
	sigmoid:         sigmoidAVX512,
	swiGLU:          swiGLUAVX512,
	swiGLUBackward:  swiGLUBackwardAVX512,
	expSum:          expSumAVX512,
	softmaxBackward: softmaxBackwardAVX512,
	dot:             dotAVX512,
	sumSquares:      sumSquaresAVX512,
	max:             maxAVX512,
	adamW:           adamWAVX512,
	adamWStreaming:  adamWStreamingAVX512,

	add16:             add16AVX512,
	addScaled16:       addScaled16AVX512,
	scale16:           scale16AVX512,
	sumBlocks16:       sumBlocks16AVX512,
	split:             splitAVX512,
	mulScaled16:       mulScaled16AVX512,
	normWeightGrad16:  normWeightGrad16AVX512,
	normInputGrad16:   normInputGrad16AVX512,
	rotate16:          rotate16AVX512,
	swiGLU16:          swiGLU16AVX512,
	swiGLUBackward16:  swiGLUBackward16AVX512,
	expSum16:          expSum16AVX512,
	softmaxBackward16: softmaxBackward16AVX512,
	dot16:             dot16AVX512,
	squares16:         squares16AVX512,
	adamW16:           adamW16AVX512,
	adamWStreaming16:  adamWStreaming16AVX512,
}

//go:noescape
func widenAVX512(dst []float32, src []uint16)

//go:noescape
func roundAVX512(dst []uint16, src []float32)

//go:noescape
func addAVX512(dst, x, y []float32)

//go:noescape
func addScaledAVX512(dst []float32, a float32, x []float32)

//go:noescape
func scaleAVX512(dst []float32, a float32, x []float32)

//go:noescape
func sumBlocksAVX512(dst, x []float32, blocks, stride int)

//go:noescape
func mulScaledAVX512(dst []float32, a float32, x, y []float32)

//go:noescape
func normWeightGradAVX512(dw []float32, a float32, dy, x, w []float32) float32

//go:noescape
func normInputGradAVX512(dx []float32, add bool, a float32, dy, w []float32, b float32, x []float32)

//go:noescape
func rotateAVX512(x []float32, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func sigmoidAVX512(dst, x []float32)

//go:noescape
func swiGLUAVX512(h, gate, up []float32)

//go:noescape
func swiGLUBackwardAVX512(dgate, dup, dh, gate, up []float32)

//go:noescape
func expSumAVX512(dst []float32, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackwardAVX512(p, ds []float32, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dotAVX512(x, y []float32) float32

//go:noescape
func sumSquaresAVX512(x []float32) float64

//go:noescape
func maxAVX512(x []float32) float32

//go:noescape
func adamWAVX512(dst, src AdamWState, grad []float32, c AdamWStep)

//go:noescape
func adamWStreamingAVX512(dst, src AdamWState, grad []float32, c AdamWStep)

//go:noescape
func add16AVX512(dst, x, y []uint16)

//go:noescape
func addScaled16AVX512(dst []float32, a float32, x []uint16)

//go:noescape
func scale16AVX512(dst []uint16, a float32, x []float32)

//go:noescape
func sumBlocks16AVX512(dst, x []uint16, blocks, stride int)

//go:noescape
func splitAVX512(dst, w []float32)

//go:noescape
func mulScaled16AVX512(dst []uint16, a float32, x []uint16, y []float32)

//go:noescape
func normWeightGrad16AVX512(dw []float32, a float32, dy, x []uint16, w []float32) float32

//go:noescape
func normInputGrad16AVX512(dx []uint16, add bool, a float32, dy []uint16, w []float32, b float32, x []uint16)

//go:noescape
func rotate16AVX512(x []uint16, stride, count, pairs int, cos, sin []float32, sign float32)

//go:noescape
func swiGLU16AVX512(h, gate, up []uint16)

//go:noescape
func swiGLUBackward16AVX512(dgate, dup, dh, gate, up []uint16)

//go:noescape
func expSum16AVX512(dst []uint16, a float32, x []float32, shift float32) float32

//go:noescape
func softmaxBackward16AVX512(p, ds []uint16, a float32, s, dp []float32, lse, delta float32)

//go:noescape
func dot16AVX512(x, y []uint16) float32

//go:noescape
func squares16AVX512(x []uint16) float32

//go:noescape
func adamW16AVX512(dst, src AdamWStateBF16, grad []float32, c AdamWStep)

//go:noescape
func adamWStreaming16AVX512(dst, src AdamWStateBF16, grad []float32, c AdamWStep)
