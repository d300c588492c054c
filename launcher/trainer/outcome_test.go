package trainer

// The harness of tests that compare runs: what a run reports of its steps, and the state that it
// ends with, which is summed in memory.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/tensor"
)

// ranksOn calls body on every rank of hosts with these numbers of ranks, prepared from a checkpoint
// unless resume is empty. It returns what the first host has said. corrupt is that of the job. The
// machine's peak is not measured.
func ranksOn(t *testing.T, cfg config.Config, sizes []int, resume string, corrupt func(r *rank, computed bool), body func(r *rank) error) (*reports, error) {
	t.Helper()
	if err := os.MkdirAll(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	var first []int
	n := 0
	for _, each := range sizes {
		first, n = append(first, n), n+each
	}
	var wg sync.WaitGroup
	said, errs := make([]reports, len(sizes)), make([]error, len(sizes))
	for h, w := range collective.NewHosts(sizes...) {
		job, err := PrepareOn(cfg, n, estimate.Host{Ranks: sizes[h], First: first, Processes: 1}, resume, Text{}, &said[h])
		if err != nil {
			t.Fatal(err)
		}
		defer job.Close()
		job.corrupt = corrupt
		wg.Go(func() {
			errs[h] = w.Run(func(c *collective.Comm) error {
				ex := tensor.NewExec()
				defer ex.Close()
				r, err := newRank(job, c, ex, 1)
				if err != nil {
					return err
				}
				return body(r)
			})
		})
	}
	wg.Wait()
	return &said[0], errors.Join(errs...)
}

// onRanks is ranksOn for n ranks of one host, which must not fail.
func onRanks(t *testing.T, cfg config.Config, n int, resume string, body func(r *rank) error) *reports {
	t.Helper()
	said, err := ranksOn(t, cfg, []int{n}, resume, nil, body)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// guarded runs cfg on n ranks, whose memory corrupt changes.
func guarded(t *testing.T, cfg config.Config, n int, resume string, corrupt func(r *rank, computed bool)) (*reports, error) {
	t.Helper()
	return ranksOn(t, cfg, []int{n}, resume, corrupt, run)
}

func run(r *rank) error { return r.run(context.Background()) }

// outcome is what does not depend on the time of day.
type outcome struct {
	steps  []string
	evals  []float64
	state  uint64 // checksum of all tensors of the state at the end
	sample string
}

// outcomeOn trains on hosts with these numbers of ranks, without the last save. Ranks that fail end
// the test.
func outcomeOn(t *testing.T, cfg config.Config, sizes []int, resume string, corrupt func(r *rank, computed bool)) (outcome, *reports) {
	t.Helper()
	var sum stateSum
	said, err := ranksOn(t, cfg, sizes, resume, func(r *rank, computed bool) {
		r.checkpoints.Step = cfg.Steps
		if corrupt != nil {
			corrupt(r, computed)
		}
	}, func(r *rank) error {
		err := run(r)
		sum.add(r)
		return err
	})
	if err != nil {
		t.Fatalf("hosts of %v ranks: %v", sizes, err)
	}
	o := outcome{state: sum.total()}
	for _, s := range said.steps {
		o.steps = append(o.steps, fmt.Sprintf("step %d: loss %x, MTP %x, balance %x, norm %x, imbalance %x, lr %x", s.Step, s.Loss, s.MTPLoss, s.Balance, s.GradNorm, s.Imbalance, s.LR))
	}
	for _, e := range said.evals {
		o.evals = append(o.evals, e.Loss)
	}
	if len(said.done) > 0 {
		o.sample = said.done[0].Sample
	}
	return o, said
}

// outcomeOf is that of n ranks in a folder of its own.
func outcomeOf(t *testing.T, cfg config.Config, n int) outcome {
	t.Helper()
	cfg.Out = t.TempDir()
	o, _ := outcomeOn(t, cfg, []int{n}, "", nil)
	return o
}

// references are the outcomes of runs on one rank by configuration and text.
var references sync.Map

// reference returns the outcome of a run on one rank.
func reference(t *testing.T, cfg config.Config) outcome {
	t.Helper()
	h, key := fnv.New64a(), cfg
	key.Out, key.Data = "", nil
	fmt.Fprintf(h, "%#v", key)
	for _, path := range cfg.Data {
		text, _ := os.ReadFile(path)
		fmt.Fprintf(h, "%d %s", len(path), text)
		if len(text) == 0 { // with a weight, or several files
			fmt.Fprint(h, path)
		}
	}
	if known, ok := references.Load(h.Sum64()); ok {
		return known.(outcome)
	}
	o := outcomeOf(t, cfg, 1)
	references.Store(h.Sum64(), o)
	return o
}

// stateSum is a checksum of the elements of a state. It does not depend on how ranks divide them.
type stateSum struct {
	mu     sync.Mutex
	pieces map[string]uint64
}

// add adds the pieces of a rank.
func (s *stateSum) add(r *rank) {
	for _, p := range r.Pieces() {
		h := fnv.New64a()
		fmt.Fprint(h, p.Name, p.Shape, p.BF16 != nil)
		seed, sum, size := h.Sum64(), uint64(0), 2
		if p.BF16 == nil {
			size = 4
		}
		for i := range p.Len() {
			x := seed + uint64(p.Offset+int64(i))
			for _, b := range p.Bytes()[i*size:][:size] {
				x = (x ^ uint64(b)) * 0x9e3779b97f4a7c15
				x ^= x >> 29
			}
			sum += x
		}
		s.mu.Lock()
		if s.pieces == nil {
			s.pieces = map[string]uint64{}
		}
		s.pieces[fmt.Sprint(p.Name, p.Offset)] = sum
		s.mu.Unlock()
	}
}

func (s *stateSum) total() (sum uint64) {
	for _, one := range s.pieces {
		sum += one
	}
	return sum
}

func (o outcome) equals(t *testing.T, what string, want outcome) {
	t.Helper()
	for i, s := range o.steps {
		if i < len(want.steps) && s != want.steps[i] {
			t.Errorf("%s: %s, want %s", what, s, want.steps[i])
		}
	}
	if !slices.Equal(o.evals, want.evals) {
		t.Errorf("%s: validation losses %v, want %v", what, o.evals, want.evals)
	}
	if o.sample != want.sample {
		t.Errorf("%s: sample %q, want %q", what, o.sample, want.sample)
	}
	if len(o.steps) != len(want.steps) || o.state != want.state {
		t.Errorf("%s: %d steps end in a state of checksum %x; want %d and %x", what, len(o.steps), o.state, len(want.steps), want.state)
	}
}

// sameState compares what two checkpoints hold, bit for bit.
func sameState(t *testing.T, what string, got, want config.Config, step int) {
	t.Helper()
	p, tensors := savedProgress(t, got, step)
	wantP, wantTensors := savedProgress(t, want, step)
	if fmt.Sprint(p) != fmt.Sprint(wantP) {
		t.Errorf("%s: progress\n%+v, want\n%+v", what, p, wantP)
	}
	bits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	for name, w := range wantTensors {
		if !slices.EqualFunc(tensors[name], w, bits) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
	if len(tensors) != len(wantTensors) {
		t.Errorf("%s: %d tensors, want %d", what, len(tensors), len(wantTensors))
	}
}
