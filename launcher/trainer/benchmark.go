package trainer

// Benchmarks of whole training steps, without the work between steps.

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
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
	Peak float64
	Loss float64 // of the last step, nats/token
	// maximum resident bytes, including jobs that took turns with it
	Memory      int64
	Activations []int64 // maximum bytes at once, per rank
	Objects     float64 // Go heap allocations per step of all ranks
	Collections int     // garbage collections during the steps
	Profile     events.Profile
	Waits       [][]time.Duration // time per step that a rank (row) waited for another (column)
}

// Benchmark runs warm steps, and then measured ones. The ranks are goroutines; their number is that
// given to Prepare. It leaves no files. If turn is not nil, the turn has begun, and other jobs
// compute between any two steps.
func (j *Job) Benchmark(ctx context.Context, world spmd.Goroutines, warm, steps int, turn *Turn) (b Benchmark, err error) {
	defer j.Close()
	if j.cfg.Out, err = os.MkdirTemp("", "bench-"); err != nil {
		return b, err
	}
	defer os.RemoveAll(j.cfg.Out)
	j.cfg.Steps, j.cfg.SaveEvery, j.cfg.EvalEvery, j.cfg.RecordEvery, j.Profile, j.cores = warm+steps, 0, 0, 0, true, world.Cores()
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
		return r.benchmark(ctx, warm, steps, turn, &b)
	})
	b.Memory = system.MostResident()
	return b, err
}

// benchmark runs the steps. The leading rank writes the results to b.
func (r *rank) benchmark(ctx context.Context, warm, steps int, turn *Turn, b *Benchmark) error {
	r.watch.Rates.Start(r.Progress)
	for i := range warm {
		if err := nextTurn(r.comm, turn, 1+i); err != nil {
			return err
		}
		if err := timedStep(ctx, r, nil, b); err != nil {
			return err
		}
	}
	r.watch.Profiler.Forget()
	waits := r.links.Waits()
	if r.lead() {
		runtime.GC() // finish a collection that earlier steps have started
	}
	took := make([]time.Duration, 0, steps)
	var objects uint64
	var collections uint32
	for i := range steps {
		if err := nextTurn(r.comm, turn, 1+warm+i); err != nil {
			return err
		}
		before, err := readHeap(r.comm)
		if err != nil {
			return err
		}
		if err := timedStep(ctx, r, &took, b); err != nil {
			return err
		}
		after, err := readHeap(r.comm)
		if err != nil {
			return err
		}
		objects += after.Mallocs - before.Mallocs
		collections += after.NumGC - before.NumGC
	}
	profile, err := r.watch.Profiler.Gather(r.comm)
	if err != nil {
		return err
	}
	for i, w := range r.links.Waits() {
		waits[i] = (w - waits[i]) / time.Duration(steps)
	}
	peaks := make([]int64, r.comm.Size())
	if err := collective.AllGather(r.comm, peaks, []int64{int64(r.activationPeak())}); err != nil {
		return err
	}
	all := make([]int64, len(waits)*r.comm.Size())
	mine := make([]int64, len(waits))
	for i, w := range waits {
		mine[i] = int64(w)
	}
	if err := collective.AllGather(r.comm, all, mine); err != nil {
		return err
	}
	if !r.lead() {
		return nil
	}
	b.Steps, b.Profile, b.Activations = took, profile, peaks
	b.Objects, b.Collections = float64(objects)/float64(steps), int(collections)
	for row := range slices.Chunk(all, len(waits)) {
		of := make([]time.Duration, len(row))
		for i, ns := range row {
			of[i] = time.Duration(ns)
		}
		b.Waits = append(b.Waits, of)
	}
	return nil
}

// nextTurn ends the previous turn and waits for turn n. It is collective.
func nextTurn(c *collective.Comm, turn *Turn, n int) error {
	if turn == nil {
		return nil
	}
	if err := c.Barrier(); err != nil {
		return fmt.Errorf("letting another job compute: %w", err)
	}
	if c.Rank() == 0 {
		turn.pass()
	}
	turn.await(n)
	return nil
}

// timedStep runs one step and appends its time to took, unless took is nil.
func timedStep(ctx context.Context, r *rank, took *[]time.Duration, b *Benchmark) error {
	begin := time.Now()
	s, stop, err := r.step(ctx)
	switch {
	case err != nil:
		return err
	case stop:
		return events.ErrInterrupted
	}
	if took != nil {
		*took = append(*took, time.Since(begin))
	}
	if r.lead() {
		b.Loss = float64(s.Loss)
	}
	return nil
}

// readHeap reads the counters of the Go heap while all ranks are paused. It is collective.
func readHeap(c *collective.Comm) (m runtime.MemStats, err error) {
	if err := c.Barrier(); err != nil {
		return m, err
	}
	if c.Rank() == 0 {
		runtime.ReadMemStats(&m)
	}
	if err := c.Barrier(); err != nil {
		return m, fmt.Errorf("reading the counters of the heap: %w", err)
	}
	return m, nil
}

// Benchmark jobs that take turns.

// Turns lets jobs that exist at the same time compute one after the other: job 0, 1, and so on,
// again and again. The first turn of a job is its work before its first step.
type Turns struct {
	mu      sync.Mutex
	moved   sync.Cond
	present []bool // jobs that have not left
	now     int    // job now % len(present) has the turn
}

// NewTurns returns turns for the given number of jobs.
func NewTurns(jobs int) *Turns {
	t := &Turns{present: make([]bool, jobs)}
	t.moved.L = &t.mu
	for i := range t.present {
		t.present[i] = true
	}
	return t
}

// Turn is the place of a job among those that take turns. A job that runs alone has a nil Turn,
// whose methods do nothing.
type Turn struct {
	all *Turns
	job int
}

// Of returns the place of a job.
func (t *Turns) Of(job int) *Turn { return &Turn{t, job} }

// Begin waits for the job's first turn.
func (t *Turn) Begin() { t.await(0) }

// await returns when the job has its n-th turn, counted from 0.
func (t *Turn) await(n int) {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	for t.all.now < n*len(t.all.present)+t.job {
		t.all.moved.Wait()
	}
}

// pass ends the job's turn.
func (t *Turn) pass() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.now++
	t.all.skip()
}

// Leave says that the job takes no more turns, whether it has the turn or not.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.present[t.job] = false
	t.all.skip()
}

// skip skips jobs that have left and wakes the one that has the turn.
func (t *Turns) skip() {
	for range t.present {
		if t.present[t.now%len(t.present)] {
			break
		}
		t.now++
	}
	t.moved.Broadcast()
}
