package optim

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// A frozen parameter keeps its weights and its state, whatever its gradient is, which does not
// count in the norm. The others train.
func TestFrozenParameters(t *testing.T) {
	for name, rule := range testRules {
		for copies := 1; copies <= 2; copies++ {
			err := collective.NewWorld(2).Run(func(c *collective.Comm) error {
				g := group("dense", c, tensor.BF16, 30, 3000, 2500, 700)
				for _, p := range g.Params {
					p.Class = moe.Linear
				}
				g.Params[1].Frozen = true
				var memory [][]byte
				for range copies {
					memory = append(memory, newMemory(rule, []*moe.Group{g}))
				}
				o := New(tensor.NewExec(), []*moe.Group{g}, c, rule, memory...)
				if err := o.Init(1); err != nil {
					return err
				}
				work := slices.Clone(g.Work.BF16())
				before := map[string][]float32{}
				for p := range o.Pieces {
					before[p.Param.Name] = slices.Clone(p.Master)
				}
				for p := range o.Pieces { // as of a run that has trained it
					for _, v := range p.State[1:] {
						if p.Param.Frozen {
							copy(v.Data.Bytes(), bytes.Repeat([]byte{0x3c}, len(v.Data.Bytes())))
						}
					}
				}
				for step := range 3 {
					for i := range g.Params {
						for j := range g.Params[i].Grad.F32() {
							g.Params[i].Grad.F32()[j] = []float32{0.01, 1e6, 0.01}[i]
						}
					}
					norm, err := o.Reduce()
					if norm > 100 {
						t.Errorf("%s: the norm is %v, with the gradient of a frozen parameter", name, norm)
					}
					var sums []uint32
					for _, grad := range o.Gradients {
						sums = append(sums, words(grad))
					}
					o.ExpectGradients(sums)
					if err = errors.Join(err, o.Apply(0.1, norm)); err != nil {
						return err
					}
					if changed := o.Changed(); changed != nil && step > 0 { // Init has set no checksums
						t.Errorf("%s, %d copies: %q have changed", name, copies, changed)
					}
				}
				for p := range o.Pieces {
					for _, v := range p.State[1:] {
						kept := bytes.Count(v.Data.Bytes(), []byte{0x3c}) == len(v.Data.Bytes())
						if p.Param.Frozen != kept || slices.Max(widened(v.Data)) == 0 {
							t.Errorf("%s: %s of %s, frozen %t, is kept: %t", name, v.Name, p.Param.Name, p.Param.Frozen, kept)
						}
					}
					if slices.Equal(p.Master, before[p.Param.Name]) != p.Param.Frozen {
						t.Errorf("%s, %d copies: %s, frozen %t, has trained or not", name, copies, p.Param.Name, p.Param.Frozen)
					}
				}
				for i, p := range g.Params {
					at := []int{0, 3000, 5500}[i]
					if slices.Equal(p.Work.BF16(), work[at:at+p.Len()]) != p.Frozen {
						t.Errorf("%s: working weights of %s, frozen %t", name, p.Name, p.Frozen)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
