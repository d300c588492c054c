package vec

// The optimizer's update of a slice of parameters, in one pass over memory.

import (
	"fmt"
	"math"
	"unsafe"
)

// AdamWStep holds the constants of one optimizer step. They are computed in float64 and rounded
// once.
type AdamWStep struct {
	gradScale, decay, lerp, beta2, oneMinusBeta2, bias2Sqrt, eps, stepSize float32
}

// NewAdamWStep prepares an AdamW step. step counts from 1, and lr is the learning rate. weightDecay
// is decoupled from the gradient. Every gradient is first multiplied by gradScale, for clipping and
// averaging.
//
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", in the form of
// torch.optim.AdamW.
func NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale float64, step int) AdamWStep {
	if step < 1 {
		panic(fmt.Sprintf("vec: AdamW step %d: steps count from 1", step))
	}
	t := float64(step)
	return AdamWStep{
		gradScale:     float32(gradScale),
		decay:         float32(1 - lr*weightDecay),
		lerp:          float32(1 - beta1),
		beta2:         float32(beta2),
		oneMinusBeta2: float32(1 - beta2),
		bias2Sqrt:     float32(math.Sqrt(1 - math.Pow(beta2, t))),
		eps:           float32(eps),
		stepSize:      float32(lr / (1 - math.Pow(beta1, t))),
	}
}

// AdamWState is the master weights of a slice of parameters and the moments of their gradients.
type AdamWState struct{ Master, ExpAvg, ExpAvgSq []float32 }

// slice returns elements [lo, hi).
func (s AdamWState) slice(lo, hi int) AdamWState {
	return AdamWState{s.Master[lo:hi], s.ExpAvg[lo:hi], s.ExpAvgSq[lo:hi]}
}

// AdamW updates the state src with grad and stores the result in dst, which may be src. The
// operations are those of torch:
//
//	g        = grad·gradScale
//	expAvg   = expAvg + (1-beta1)·(g - expAvg)
//	expAvgSq = expAvgSq·beta2 + (1-beta2)·g·g
//	master   = master·(1 - lr·weightDecay)
//	           - (lr/(1-beta1^t))·expAvg / (sqrt(expAvgSq)/sqrt(1-beta2^t) + eps)
func AdamW(dst, src AdamWState, grad []float32, c AdamWStep) {
	n := len(grad)
	dst, src = dst.slice(0, n), src.slice(0, n)
	for ; n > chunk; n -= chunk {
		AdamW(dst.slice(0, chunk), src.slice(0, chunk), grad[:chunk], c)
		dst, src, grad = dst.slice(chunk, n), src.slice(chunk, n), grad[chunk:]
	}
	active.adamW(dst, src, grad, c)
}

// AdamWStreaming is AdamW with non-temporal stores. It suits a dst that would leave the caches
// before it is read again. dst must not be src. If an array of dst does not begin on a cache line
// boundary, it is the same as AdamW.
func AdamWStreaming(dst, src AdamWState, grad []float32, c AdamWStep) {
	n := len(grad)
	if !dst.aligned() {
		AdamW(dst, src, grad, c)
		return
	}
	dst, src = dst.slice(0, n), src.slice(0, n)
	for ; n > chunk; n -= chunk {
		AdamWStreaming(dst.slice(0, chunk), src.slice(0, chunk), grad[:chunk], c)
		dst, src, grad = dst.slice(chunk, n), src.slice(chunk, n), grad[chunk:]
	}
	active.adamWStreaming(dst, src, grad, c)
}

// aligned says whether all arrays begin on a cache line boundary.
func (s AdamWState) aligned() bool {
	at := func(x []float32) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(x))) }
	return (at(s.Master)|at(s.ExpAvg)|at(s.ExpAvgSq))%64 == 0
}

func adamWGeneric(dst, src AdamWState, grad []float32, c AdamWStep) {
	n := len(grad)
	dst, src = dst.slice(0, n), src.slice(0, n)
	for i, g := range grad {
		g = float32(g * c.gradScale)
		w, m, v := src.Master[i], src.ExpAvg[i], src.ExpAvgSq[i]
		m += float32(c.lerp * (g - m))
		v = float32(v*c.beta2) + float32(c.oneMinusBeta2*g*g)
		denom := float32(math.Sqrt(float64(v)))/c.bias2Sqrt + c.eps
		dst.Master[i] = float32(w*c.decay) - c.stepSize*m/denom
		dst.ExpAvg[i], dst.ExpAvgSq[i] = m, v
	}
}
