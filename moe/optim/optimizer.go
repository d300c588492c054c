// Package optim trains a moe.Model with AdamW on FP32 master weights that are sharded over all
// ranks (ZeRO-1): every rank sums and updates its own slice of the replicated parameters and
// hands the new working weights to the others. Expert weights are updated where they live.
package optim

import (
	"fmt"
	"math"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// AdamW holds the constants of the optimizer (arXiv:1711.05101). Weight decay applies to every parameter.
type AdamW struct {
	Beta1       float64 `toml:"beta1" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" help:"added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" help:"decoupled weight decay, on all parameters"`
	ClipNorm    float64 `toml:"clip_norm" help:"largest global gradient norm; 0: no clipping"`
}

// Validate reports the first field that cannot be.
func (c AdamW) Validate() error {
	switch {
	case !(c.Beta1 >= 0 && c.Beta1 < 1):
		return fmt.Errorf("optimizer.beta1 is %g: give 0 or more, below 1", c.Beta1)
	case !(c.Beta2 >= 0 && c.Beta2 < 1):
		return fmt.Errorf("optimizer.beta2 is %g: give 0 or more, below 1", c.Beta2)
	case !(c.Eps > 0) || math.IsInf(c.Eps, 0):
		return fmt.Errorf("optimizer.eps is %g: give a positive number", c.Eps)
	case !(c.WeightDecay >= 0) || math.IsInf(c.WeightDecay, 0):
		return fmt.Errorf("optimizer.weight_decay is %g: give 0 or more", c.WeightDecay)
	case !(c.ClipNorm >= 0):
		return fmt.Errorf("optimizer.clip_norm is %g: give 0 (off) or more", c.ClipNorm)
	}
	return nil
}

// Optimizer holds this rank's shards of the master weights and moments.
type Optimizer struct {
	cfg    AdamW
	comm   *collective.Comm
	ex     *tensor.Exec
	shards []shard
	steps  int // updates made so far
}

// shard is the slice [lo, hi) of a group that this rank updates.
type shard struct {
	group                    *moe.Group
	lo, hi                   int
	counts                   []int // length of every rank's slice; nil for a local group
	master, expAvg, expAvgSq tensor.Tensor
}

// New returns an optimizer, which computes on the threads of ex. Master weights and moments are zero: Init or a checkpoint sets them.
func New(ex *tensor.Exec, groups []*moe.Group, c *collective.Comm, cfg AdamW) *Optimizer {
	o := &Optimizer{cfg: cfg, comm: c, ex: ex}
	for _, g := range groups {
		s := shard{group: g, hi: g.Len()}
		if !g.Local {
			s.counts = split(g.Len(), c.Size())
			for _, n := range s.counts[:c.Rank()] {
				s.lo += n
			}
			s.hi = s.lo + s.counts[c.Rank()]
		}
		for _, t := range []*tensor.Tensor{&s.master, &s.expAvg, &s.expAvgSq} {
			*t = tensor.New(tensor.FP32, s.hi-s.lo)
		}
		o.shards = append(o.shards, s)
	}
	return o
}

// split divides n elements among ranks at multiples of a cache line.
func split(n, ranks int) []int {
	const line = tensor.Alignment / 4
	counts := make([]int, ranks)
	for r := range counts {
		lo, hi := n/line*r/ranks*line, n/line*(r+1)/ranks*line
		if r == ranks-1 {
			hi = n
		}
		counts[r] = hi - lo
	}
	return counts
}

// Init sets the master weights to the model's initial ones and publishes them.
func (o *Optimizer) Init(seed uint64) error {
	for p := range o.Pieces {
		p.Param.Fill(p.Master, p.Offset, seed)
	}
	return o.Publish()
}

// Result is what a step did.
type Result struct {
	GradNorm float64 // global, before clipping
	Skipped  bool    // the gradient was not finite: nothing was changed
}

// Step sums the ranks' gradients, clips them by their global norm, updates the master weights
// at learning rate lr, publishes the working weights and zeroes the gradients. It is
// collective. A gradient with a NaN or an infinity leaves weights and moments as they were.
func (o *Optimizer) Step(lr float64) (Result, error) {
	defer o.ex.Enter(o.ex.Enter(profile.Optimizer))
	norm, err := o.reduce()
	if err != nil {
		return Result{}, err
	}
	res := Result{GradNorm: norm, Skipped: math.IsNaN(norm) || math.IsInf(norm, 0)}
	if !res.Skipped {
		o.steps++
		c := o.cfg
		step := tensor.NewAdamWStep(lr, c.Beta1, c.Beta2, c.Eps, c.WeightDecay, c.clip(norm), o.steps)
		for _, s := range o.shards {
			tensor.AdamW(o.ex, s.master, s.expAvg, s.expAvgSq, s.grad(), step)
		}
		err = o.Publish()
	}
	for _, s := range o.shards {
		s.group.Grad.Zero()
	}
	return res, err
}

// clip returns the factor that brings a gradient of this norm to at most ClipNorm.
func (c AdamW) clip(norm float64) float64 {
	if c.ClipNorm == 0 {
		return 1
	}
	return min(1, c.ClipNorm/(norm+1e-6))
}

// reduce leaves the sum of the ranks' gradients in each rank's slices and returns the global norm.
func (o *Optimizer) reduce() (float64, error) {
	var sum float64
	for _, s := range o.shards {
		if s.counts != nil {
			if err := o.reduceScatter(s); err != nil {
				return 0, fmt.Errorf("summing %s gradients: %w", s.group.Name, err)
			}
		}
		sum += tensor.SumSquares(o.ex, s.grad())
	}
	total := [1]float64{sum}
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if err := collective.AllReduce(o.comm, total[:], collective.Sum); err != nil {
		return 0, fmt.Errorf("summing the gradient norm: %w", err)
	}
	return math.Sqrt(total[0]), nil
}

func (o *Optimizer) reduceScatter(s shard) error {
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	return collective.ReduceScatter(o.comm, s.grad().F32(), s.group.Grad.F32(), s.counts, collective.Sum)
}

// Publish rounds the master weights into the working weights of all ranks. It is collective.
func (o *Optimizer) Publish() error {
	for _, s := range o.shards {
		work := s.group.Work.Slice(s.lo, s.hi)
		tensor.Convert(o.ex, work.Mat(), s.master.Mat())
		if s.counts != nil {
			if err := o.allGather(s); err != nil {
				return fmt.Errorf("publishing %s weights: %w", s.group.Name, err)
			}
		}
		o.refresh(s)
	}
	return nil
}

func (o *Optimizer) allGather(s shard) error {
	defer o.ex.Enter(o.ex.Enter(profile.Collectives))
	if all := s.group.Work; all.DType() == tensor.BF16 {
		return collective.AllGatherV(o.comm, all.BF16(), all.BF16()[s.lo:s.hi], s.counts)
	}
	all := s.group.Work.F32()
	return collective.AllGatherV(o.comm, all, all[s.lo:s.hi], s.counts)
}

// refresh quantises the weights, where they are.
func (o *Optimizer) refresh(s shard) {
	defer o.ex.Enter(o.ex.Enter(profile.Quantize))
	s.group.Refresh(o.ex)
}

func (s *shard) grad() tensor.Tensor { return s.group.Grad.Slice(s.lo, s.hi) }

// Piece is a run of one parameter's state that this rank owns: elements
// [Offset, Offset+len(Master)) of the flattened parameter.
type Piece struct {
	Param                    *moe.Param
	Offset                   int
	Master, ExpAvg, ExpAvgSq []float32
}

// Pieces calls yield for every piece of this rank, in a fixed order.
func (o *Optimizer) Pieces(yield func(Piece) bool) {
	for _, s := range o.shards {
		at := 0
		for _, p := range s.group.Params {
			lo, hi := max(s.lo, at), min(s.hi, at+p.Len())
			if lo < hi {
				part := func(t tensor.Tensor) []float32 { return t.F32()[lo-s.lo : hi-s.lo] }
				if !yield(Piece{p, lo - at, part(s.master), part(s.expAvg), part(s.expAvgSq)}) {
					return
				}
			}
			at += p.Len()
		}
	}
}

// Steps returns the number of updates made, which sets the bias correction of the moments.
func (o *Optimizer) Steps() int { return o.steps }

// SetSteps continues after n updates, when master weights and moments were loaded.
func (o *Optimizer) SetSteps(n int) { o.steps = n }

// Bytes returns the memory of this rank's shards.
func (o *Optimizer) Bytes() int64 {
	var n int64
	for _, s := range o.shards {
		n += 3 * 4 * int64(s.hi-s.lo)
	}
	return n
}
