package golden

import (
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/spmd"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// rank is one rank's FP32 model with the reference weights.
type rank struct {
	comm  *collective.Comm
	ex    *tensor.Exec
	model *moe.Model
	optim *optim.Optimizer
}

// run calls body on each of n ranks, with its part of the model and of an optimizer that clips to a
// norm.
func (f *Folder) run(n, seq int, rule optim.Rule, clipNorm float64, body func(r *rank) error) error {
	if err := f.Ranks(n); err != nil {
		return err
	}
	return spmd.Goroutines{N: n}.Run(func(c *collective.Comm) error {
		r := &rank{comm: c, ex: tensor.NewExec()}
		var err error
		if r.model, err = moe.New(f.Config, moe.Unquantized(tensor.FP32), seq, c, nil); err != nil {
			return err
		}
		r.optim = optim.New(r.ex, r.model.Groups, c, rule)
		r.optim.ClipNorm = clipNorm
		if err := f.weights.Init(r.ex, r.optim, r.model.Routings()); err != nil {
			return err
		}
		return body(r)
	})
}

// parameter reads a tensor and checks its shape.
func parameter(file *safetensors.File, name string, dims []int) ([]float32, error) {
	info, ok := file.Info(name)
	if !ok {
		return nil, fmt.Errorf("there is no tensor %s of shape %v", name, dims)
	}
	if !slices.Equal(info.Shape, dims) {
		return nil, fmt.Errorf("%s has shape %v, the model's has %v", name, info.Shape, dims)
	}
	return file.Float32s(name)
}

// share returns this rank's part [lo, hi) of n sequences.
func (r *rank) share(n int) (lo, hi int) {
	return n * r.comm.Rank() / r.comm.Size(), n * (r.comm.Rank() + 1) / r.comm.Size()
}

// sum adds up a number over all ranks.
func (r *rank) sum(x float64) (float64, error) {
	buf := [1]float64{x}
	err := collective.AllReduce(r.comm, buf[:], collective.Sum)
	return buf[0], err
}
