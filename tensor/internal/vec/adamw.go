package vec

// The optimizer's update of one slice of parameters, in one pass over memory.

import (
	"fmt"
	"math"
)

// AdamWStep holds the constants of one optimizer step, derived in float64 and rounded once.
type AdamWStep struct {
	gradScale, decay, lerp, beta2, oneMinusBeta2, bias2Sqrt, eps, stepSize float32
}

// NewAdamWStep prepares step number step (the first is 1) of AdamW. lr is the learning rate, weightDecay is decoupled
// from the gradient, and every gradient is multiplied by gradScale (for clipping and averaging) before it is used.
// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", in the form of torch.optim.AdamW.
func NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale float64, step int) AdamWStep {
	if step < 1 {
		panic(fmt.Sprintf("vec: AdamW step %d, want 1 or more", step))
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

// AdamW updates the master weights and the moments m and v in place from grad, operation by operation as torch does:
//
//	g      = grad·gradScale
//	master = master·(1 - lr·weightDecay)
//	m      = m + (1-beta1)·(g - m)
//	v      = v·beta2 + (1-beta2)·g·g
//	master = master - (lr/(1-beta1^t))·m / (sqrt(v)/sqrt(1-beta2^t) + eps)
func AdamW(master, m, v, grad []float32, c AdamWStep) {
	m, v, grad = m[:len(master)], v[:len(master)], grad[:len(master)]
	for len(master) > chunk {
		AdamW(master[:chunk], m[:chunk], v[:chunk], grad[:chunk], c)
		master, m, v, grad = master[chunk:], m[chunk:], v[chunk:], grad[chunk:]
	}
	active.adamW(master, m, v, grad, c)
}

func adamWGeneric(master, m, v, grad []float32, c AdamWStep) {
	m, v, grad = m[:len(master)], v[:len(master)], grad[:len(master)]
	for i, p := range master {
		g := float32(grad[i] * c.gradScale)
		mi := m[i] + float32(c.lerp*(g-m[i]))
		vi := float32(v[i]*c.beta2) + float32(c.oneMinusBeta2*g*g)
		m[i], v[i] = mi, vi
		denom := float32(math.Sqrt(float64(vi)))/c.bias2Sqrt + c.eps
		master[i] = float32(p*c.decay) - c.stepSize*mi/denom
	}
}
