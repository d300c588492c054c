package optim

// A rule that is in no other file: what an optimizer has to bring with it. It stands for those that need whole matrices and
// keep narrow state.

import (
	"math"

	"spmoe/tensor"
)

// normalizedSGD is SGD with momentum in BF16, whose steps have one length for each parameter:
//
//	momentum = 0.9·momentum + grad·gradScale
//	master   = master - lr·momentum / |momentum|
type normalizedSGD struct{}

func (normalizedSGD) Validate() error     { return nil }
func (normalizedSGD) Vectors() []Vector   { return []Vector{{"momentum_buffer", tensor.BF16}} }
func (normalizedSGD) WholeMatrices() bool { return true }

func (normalizedSGD) Prepare(s Step) Update {
	return func(ex *tensor.Exec, r Run) {
		if r.Grad.Len() != r.Param.Len() {
			panic("normalizedSGD: a part of " + r.Param.Name)
		}
		newMaster, master := r.Master()
		newMomentum, momentum := r.Vector(0)
		var squares float64
		for i, g := range r.Grad.F32() {
			m := tensor.ToBFloat16(0.9*momentum.BF16()[i].Float32() + g*float32(s.GradScale))
			newMomentum.BF16()[i] = m
			squares += float64(m.Float32()) * float64(m.Float32())
		}
		step := float32(s.LR / (math.Sqrt(squares) + 1e-12))
		for i, m := range newMomentum.BF16() {
			newMaster.F32()[i] = master.F32()[i] - step*m.Float32()
		}
		r.Publish(ex)
	}
}
