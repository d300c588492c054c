package trainer

// Benchmarks of whole training steps, without the work between steps.

import (
	"context"
	"os"
	"runtime"
	"time"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/events"
	"spmoe/tensor"
)

// Benchmark is the result of measuring the steps of a job alone: without evaluation, record or
// checkpoint.
type Benchmark struct {
	Steps  []time.Duration // of each measured step
	Tokens int             // per step
	FLOPs  float64         // per token, see moe.Config.FLOPsPerToken
	// of all cores, in FLOP/s in the type of weights and activations, measured right before
	Peak        float64
	Loss        float64 // of the last step, nats/token
	Memory      int64   // maximum resident bytes
	Activations []int64 // maximum bytes at once, per rank
}

// Benchmark runs warm steps, and then measured ones. The ranks are goroutines; their number is that
// given to Prepare. It leaves no files.
func (j *Job) Benchmark(ctx context.Context, world spmd.Goroutines, warm, steps int) (b Benchmark, err error) {
	defer j.Close()
	if j.cfg.Out, err = os.MkdirTemp("", "bench-"); err != nil {
		return b, err
	}
	defer os.RemoveAll(j.cfg.Out)
	j.cfg.Steps = warm + steps
	j.cfg.SaveEvery = 0
	j.cfg.EvalEvery = 0
	j.cfg.RecordEvery = 0
	j.cores = world.Cores()
	dtype, err := j.cfg.DType()
	if err != nil {
		return b, err
	}
	b.Tokens = j.cfg.Batch * j.cfg.Seq
	b.FLOPs = j.cfg.Model.FLOPsPerToken(j.cfg.Seq) * float64(b.Tokens)
	b.Peak = tensor.Peak(dtype, 200*time.Millisecond)
	runtime.GC()
	system.ForgetMostResident()
	team := j.team(world)
	defer team.Close()
	err = world.Run(func(c *collective.Comm) error {
		ex := team.Join()
		defer ex.Close()
		r, err := newRank(j, c, ex, b.Peak)
		if err != nil {
			return err
		}
		defer r.checkpoints.Saver.Close()
		defer r.Data.Loader.Close()
		return r.benchmark(ctx, warm, steps, &b)
	})
	b.Memory = system.MostResident()
	return b, err
}

// benchmark runs the steps. The leading rank writes the results to b.
func (r *rank) benchmark(ctx context.Context, warm, steps int, b *Benchmark) error {
	r.watch.Rates.Start(r.Progress)
	for i := range warm + steps {
		if i == warm && r.lead() {
			runtime.GC() // finish a collection that earlier steps have started
		}
		if err := r.comm.Barrier(); err != nil {
			return err
		}
		begin := time.Now()
		s, stop, err := r.step(ctx)
		switch {
		case err != nil:
			return err
		case stop:
			return events.ErrInterrupted
		}
		if r.lead() && i >= warm {
			b.Steps = append(b.Steps, time.Since(begin))
			b.Loss = float64(s.Loss)
		}
	}
	peaks := make([]int64, r.comm.Size())
	err := collective.AllGather(r.comm, peaks, []int64{int64(r.activationPeak())})
	if r.lead() {
		b.Activations = peaks
	}
	return err
}

// team creates the threads of this process's ranks.
func (j *Job) team(world spmd.World) *tensor.Team {
	team := tensor.NewTeam(world.Here(), j.cfg.RankThreads(world.Ranks(), world.Cores()))
	if recipe, err := j.cfg.Recipe(); err == nil && recipe.Sum.OfGPU() {
		team.MakePortable()
	}
	return team
}
