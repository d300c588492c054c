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
		decay:         float32(1 - float64(lr*weightDecay)), // not fused on any CPU
		lerp:          float32(1 - beta1),
		beta2:         float32(beta2),
		oneMinusBeta2: float32(1 - beta2),
		bias2Sqrt:     float32(math.Sqrt(1 - math.Pow(beta2, t))),
		eps:           float32(eps),
		stepSize:      float32(lr / (1 - math.Pow(beta1, t))),
	}
}

// AdamWState is the master weights of a slice of parameters and the moments of their gradients.
type AdamWState = adamWState[float32]

// AdamWStateBF16 is an AdamWState with moments in BF16.
type AdamWStateBF16 = adamWState[uint16]

type adamWState[M float32 | uint16] struct {
	Master           []float32
	ExpAvg, ExpAvgSq []M
}

// Slice returns elements [lo, hi).
func (s adamWState[M]) Slice(lo, hi int) adamWState[M] {
	return adamWState[M]{s.Master[lo:hi], s.ExpAvg[lo:hi], s.ExpAvgSq[lo:hi]}
}

// AdamW updates the state src with grad and stores the result in dst, which may be src. It adds to
// the sums. The operations are those of torch:
//
//	g        = grad·gradScale
//	expAvg   = expAvg + (1-beta1)·(g - expAvg)
//	expAvgSq = expAvgSq·beta2 + (1-beta2)·g·g
//	master   = master·(1 - lr·weightDecay)
//	           - (lr/(1-beta1^t))·expAvg / (sqrt(expAvgSq)/sqrt(1-beta2^t) + eps)
func AdamW(dst, src AdamWState, grad []float32, c AdamWStep, sums *AdamWSums) {
	inChunks(active.adamW, dst, src, grad, c, sums)
}

// AdamWBF16 is AdamW with moments in BF16. It widens them and computes as AdamW does. The master
// weights are updated by the new moments before these are rounded to nearest even.
func AdamWBF16(dst, src AdamWStateBF16, grad []float32, c AdamWStep, sums *AdamWSums) {
	inChunks(active.adamW16, dst, src, grad, c, sums)
}

// AdamWStreaming is AdamW with non-temporal stores. It suits a dst that would leave the caches
// before it is read again. dst must not be src. If an array of dst does not begin on a cache line
// boundary, it is the same as AdamW.
func AdamWStreaming(dst, src AdamWState, grad []float32, c AdamWStep, sums *AdamWSums) {
	if !dst.aligned() {
		AdamW(dst, src, grad, c, sums)
		return
	}
	inChunks(active.adamWStreaming, dst, src, grad, c, sums)
}

// AdamWStreamingBF16 is AdamWStreaming with moments in BF16.
func AdamWStreamingBF16(dst, src AdamWStateBF16, grad []float32, c AdamWStep, sums *AdamWSums) {
	if !dst.aligned() {
		AdamWBF16(dst, src, grad, c, sums)
		return
	}
	inChunks(active.adamWStreaming16, dst, src, grad, c, sums)
}

// inChunks calls a kernel for chunks of the state.
func inChunks[M float32 | uint16](kernel func(dst, src adamWState[M], grad []float32, c AdamWStep, sums *AdamWSums), dst, src adamWState[M], grad []float32, c AdamWStep, sums *AdamWSums) {
	n := len(grad)
	dst, src = dst.Slice(0, n), src.Slice(0, n)
	for ; n > chunk; n -= chunk {
		kernel(dst.Slice(0, chunk), src.Slice(0, chunk), grad[:chunk], c, sums)
		dst, src, grad = dst.Slice(chunk, n), src.Slice(chunk, n), grad[chunk:]
	}
	kernel(dst, src, grad, c, sums)
}

// aligned says whether all arrays begin on a cache line boundary.
func (s adamWState[M]) aligned() bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(s.Master)))
	for _, x := range [][]M{s.ExpAvg, s.ExpAvgSq} {
		at |= uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	}
	return at%64 == 0
}

func adamWGeneric(dst, src AdamWState, grad []float32, c AdamWStep, sums *AdamWSums) {
	n := len(grad)
	dst, src = dst.Slice(0, n), src.Slice(0, n)
	for i, g := range grad {
		w, m, v := src.Master[i], src.ExpAvg[i], src.ExpAvgSq[i]
		sums.ReadExpAvg.add(m)
		sums.ReadExpAvgSq.add(v)
		w, m, v = c.summedUpdate(w, m, v, g, sums)
		sums.WroteExpAvg.add(m)
		sums.WroteExpAvgSq.add(v)
		dst.Master[i], dst.ExpAvg[i], dst.ExpAvgSq[i] = w, m, v
	}
}

func adamW16Generic(dst, src AdamWStateBF16, grad []float32, c AdamWStep, sums *AdamWSums) {
	n := len(grad)
	dst, src = dst.Slice(0, n), src.Slice(0, n)
	for i, g := range grad {
		sums.ReadExpAvg.addBF16(src.ExpAvg[i])
		sums.ReadExpAvgSq.addBF16(src.ExpAvgSq[i])
		w, m, v := c.summedUpdate(src.Master[i], FromBF16(src.ExpAvg[i]), FromBF16(src.ExpAvgSq[i]), g, sums)
		dst.Master[i], dst.ExpAvg[i], dst.ExpAvgSq[i] = w, ToBF16(m), ToBF16(v)
		sums.WroteExpAvg.addBF16(dst.ExpAvg[i])
		sums.WroteExpAvgSq.addBF16(dst.ExpAvgSq[i])
	}
}

// summedUpdate is update with the sums of weights and gradient.
func (c *AdamWStep) summedUpdate(w, m, v, g float32, sums *AdamWSums) (master, expAvg, expAvgSq float32) {
	sums.ReadMaster.add(w)
	sums.ReadGrad.add(g)
	master, expAvg, expAvgSq = c.update(w, m, v, g)
	sums.WroteMaster.add(master)
	sums.WroteWork.addBF16(ToBF16(master))
	return master, expAvg, expAvgSq
}

// update computes one element of AdamW.
func (c *AdamWStep) update(w, m, v, g float32) (master, expAvg, expAvgSq float32) {
	g = float32(g * c.gradScale)
	m += float32(c.lerp * (g - m))
	v = float32(v*c.beta2) + float32(c.oneMinusBeta2*g*g)
	denom := float32(math.Sqrt(float64(v)))/c.bias2Sqrt + c.eps
	return float32(w*c.decay) - c.stepSize*m/denom, m, v
}
