package optim

// A rule that is in no other file: what an optimizer has to bring with it. It stands for those that
// need whole matrices and keep narrow state.

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spmoe/moe"
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
func (r normalizedSGD) Of(moe.Class) Rule { return r }

func (normalizedSGD) Prepare(s Step) Update {
	return func(ex *tensor.Exec, r Run) {
		if r.Grad.Len() != r.Param.Len() {
			panic("normalizedSGD: a part of " + r.Param.Name)
		}
		newMaster, master := r.Master()
		newMomentum, momentum := r.Vector(0)
		tensor.Words(ex, &r.Sums.Read[0], master)
		tensor.Words(ex, &r.Sums.Read[1], momentum)
		tensor.Words(ex, &r.Sums.Grad, r.Grad)
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
		tensor.Words(ex, &r.Sums.Wrote[1], newMomentum)
		r.Round(ex)
	}
}

// listed is a rule that keeps these vectors.
type listed struct {
	normalizedSGD
	vectors []Vector
}

func (l listed) Vectors() []Vector { return l.vectors }
func (l listed) Of(moe.Class) Rule { return l }

// A rule whose vectors no checkpoint could hold is a programming mistake.
func TestVectorsPanic(t *testing.T) {
	for want, list := range map[string][]Vector{
		`state vector "master"`:  {{"master", tensor.FP32}},
		`state vector "m"`:       {{"m", tensor.FP32}, {"m", tensor.BF16}},
		`state vector ""`:        {{"", tensor.FP32}},
		`state vector "a/b"`:     {{"a/b", tensor.FP32}},
		"m is uint8: make it FP": {{"m", tensor.UINT8}},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			BytesPerWeight(listed{vectors: list})
		}()
	}
	if got := BytesPerWeight(listed{vectors: []Vector{{"a", tensor.FP32}, {"b", tensor.BF16}}}); got != 10 {
		t.Errorf("%d bytes per weight, want 10", got)
	}
}
