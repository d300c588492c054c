package projection

// The division of a pipeline into stages, and what its schedule costs.

import (
	"slices"
	"sync"

	"spmoe/collective/pipeline"
)

// cut divides blocks, in order, among stages, so that the largest is as small as possible. It
// returns the load of the fullest GPU over the mean. stages has the GPU of each stage.
func cut(blocks []float64, stages []int) (imbalance float64) {
	chunks, gpus := len(stages), 1+slices.Max(stages)
	total, largest := 0.0, 0.0
	for _, b := range blocks {
		total, largest = total+b, max(largest, b)
	}
	if gpus <= 1 || total == 0 {
		return 1
	}
	low, high := max(largest, total/float64(chunks)), total
	for range 40 {
		if middle := (low + high) / 2; pieces(blocks, middle) <= chunks {
			high = middle
		} else {
			low = middle
		}
	}
	loads := make([]float64, gpus)
	at, load := 0, 0.0
	for i, b := range blocks {
		// A chunk ends when it is full, or when the remaining chunks need the remaining blocks.
		if load > 0 && (load+b > high*(1+1e-9) || len(blocks)-i <= chunks-1-at) {
			at, load = at+1, 0
		}
		load += b
		loads[stages[at]] += b
	}
	fullest := 0.0
	for _, l := range loads {
		fullest = max(fullest, l)
	}
	return fullest * float64(gpus) / total
}

// pieces returns the number of runs of at most limit that the blocks need.
func pieces(blocks []float64, limit float64) int {
	n, load := 1, 0.0
	for _, b := range blocks {
		if load > 0 && load+b > limit*(1+1e-9) {
			n, load = n+1, 0
		}
		load += b
	}
	return n
}

// schedule returns the name of the pipeline's schedule.
func (r Run) schedule() string {
	switch {
	case r.Schedule != "":
		return r.Schedule
	case r.VP > 1:
		return "Interleaved1F1B"
	}
	return "1F1B"
}

// pipelined is what the lists of a schedule say about a pipeline whose stages cost the same.
type pipelined struct {
	idle   float64 // most time in which a GPU does nothing, over its time for a micro-batch
	flight float64 // most activations of a GPU, over those of a micro-batch
	stages []int   // the GPU of each stage
}

// pipeline returns what the run's schedule says. Lists of other sizes than its micro-batches serve
// as well: once the pipeline is full, more micro-batches change neither.
func (r Run) pipeline() (pipelined, error) {
	microBatches := int(r.microBatches())
	if full := 4 * r.PP; microBatches%r.PP == 0 {
		microBatches = min(microBatches, full)
	}
	key := scheduleKey{r.schedule(), r.PP, r.VP, microBatches, r.Recompute == "full"}
	if known, ok := schedules.Load(key); ok {
		return known.(pipelined), nil
	}
	p, err := key.simulate()
	if err == nil {
		schedules.Store(key, p)
	}
	return p, err
}

// schedules has the pipelined of each scheduleKey, because a sweep asks often.
var schedules sync.Map

type scheduleKey struct {
	name                    string
	gpus, per, microBatches int
	recomputes              bool // a forward pass precedes I
}

func (k scheduleKey) simulate() (p pipelined, err error) {
	s, err := pipeline.New(k.name, k.gpus, k.per, k.microBatches)
	if err != nil {
		return p, err
	}
	c := pipeline.Costs{F: 1, I: 1, W: 1}
	if k.recomputes {
		c.I += c.F
	}
	t, err := s.Simulate(c)
	if err != nil {
		return p, err
	}
	per := float64(k.per)
	return pipelined{
		idle:   slices.Max(t.Idle) / (per * (c.F + c.I + c.W)),
		flight: float64(t.MostInFlight()) / per,
		stages: s.Holders(),
	}, nil
}

// bubble returns the idle time of the pipeline relative to the busy time. Where the schedule has no
// lists for their number of micro-batches, it is that of interleaved 1F1B:
// (pp-1)/(micro-batches·vp).
func (r Run) bubble() float64 {
	if p, err := r.pipeline(); err == nil {
		return p.idle / r.microBatches()
	}
	return float64(r.PP-1) / (r.microBatches() * float64(r.VP))
}

// inFlight returns the micro-batches whose activations a GPU holds at most.
func (r Run) inFlight() float64 {
	if p, err := r.pipeline(); err == nil {
		return p.flight
	}
	return min(float64(r.PP)+float64(r.PP-1)/float64(r.VP), r.microBatches())
}

// stages returns the GPU of each stage: around the GPUs, unless the schedule has another order.
func (r Run) stages() []int {
	if p, err := r.pipeline(); err == nil {
		return p.stages
	}
	stages := make([]int, r.PP*r.VP)
	for i := range stages {
		stages[i] = i % r.PP
	}
	return stages
}
