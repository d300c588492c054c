package trainer

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/guard"
	"spmoe/tensor"
)

// flipKind flips a bit in each piece of plain data of a kind that a rank reaches. It is one of the
// lowest byte of a number, so that tokens stay within the vocabulary.
func flipKind(t *testing.T, rng *rand.Rand, r *rank, kind string) {
	all := reachable(r)[kind]
	if len(all) == 0 {
		t.Errorf("no data of kind %s", kind)
	}
	for _, b := range all {
		b[rng.IntN(len(b))&^3] ^= 1 << rng.IntN(8)
	}
}

// place is a kind of data, and what an alarm calls it.
type place struct{ kind, name string }

// lasting are places that live for the whole run.
var lasting = []place{
	{"tensor.RotaryTable.cos", "a rotary table"}, {"tensor.RotaryTable.sin", "a rotary table"},
	{"moe.latentAttention.scale", "the configuration of attention"}, {"moe.rmsNorm.eps", "the epsilon of a norm"},
	{"moe.router.load", "saved activations of layer "},
	{"optim.Optimizer.ClipNorm", "the settings of the optimizer"}, {"optim.AdamW.Beta2", "the shards of the optimizer"},
	{"optim.segment.begin", "the shards of the optimizer"}, {"optim.Optimizer.steps", "the counters of the optimizer"},
	{"state.DataLoader.Batch", "the settings of the loader"}, {"state.DataLoader.Rows", "the tokens of the batch"},
	{"state.Progress.Tokens", "the progress"}, {"state.Progress.Norms", "the progress"}, {"state.Progress.Recent", "the progress"},
	{"state.Progress.Skipped", "the progress"},
}

// passing are places that live for a part of a pass.
var passing = []place{
	{"state.DataLoader.Inputs", "the tokens of a pass"}, {"state.DataLoader.Targets", "the tokens of a pass"},
	{"ep.Handle.packed", "saved activations of layer "}, {"ep.Handle.weights", "saved activations of layer "},
	{"ep.Handle.GroupEnds", "saved activations of layer "}, {"tensor.AttentionShape.Scale", "saved activations of layer "},
}

// A bit that flips in constants, tokens, places of the exchange or counters is found in the same
// step, whenever it flips, and the run is the undisturbed one, bit for bit.
func TestFlippedPlaces(t *testing.T) {
	t.Parallel()
	const begin, middle, end = "begin", "middle", "end"
	for _, c := range []struct {
		moment, exchange string
		places           []place
	}{{begin, "onesided", lasting}, {end, "onesided", lasting}, {middle, "onesided", passing}, {middle, "standard", passing}} {
		t.Run(c.moment+" "+c.exchange, func(t *testing.T) {
			t.Parallel()
			undisturbed := guardedConfig(t, func(cfg *config.Config) {
				cfg.Steps, cfg.SaveEvery, cfg.EPExchange, cfg.Guard.Activations = len(c.places)+2, 0, c.exchange, 1
			})
			if got, err := guarded(t, undisturbed, 2, "", nil); err != nil || len(got.texts()) > 0 {
				t.Fatalf("%v, alarms %q", err, got.texts())
			}
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
				i := r.Progress.Step - 1 // a place per step, from the second on
				if i < 0 || i >= len(c.places) || i%2 != r.comm.Rank() {
					return
				}
				rng := rand.New(rand.NewPCG(7, uint64(i)))
				if !computed {
					attempts.next(r)
				}
				first := attempts[r.comm.Rank()].n == 1
				switch {
				case first && (c.moment == begin && !computed || c.moment == end && computed):
					flipKind(t, rng, r, c.places[i].kind)
				case first && c.moment == middle && !computed:
					r.Model.Observe(func(layer string, _ tensor.Tensor) {
						if layer == "layer1_mlp" { // all rows have come back to the last layer
							flipKind(t, rng, r, c.places[i].kind)
							r.Model.Observe(nil)
						}
					})
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			alarms := got.texts()
			for i, p := range c.places {
				want := fmt.Sprintf("step %d: %s", i+2, p.name)
				if i >= len(alarms) || !strings.HasPrefix(alarms[i], want) ||
					!strings.HasSuffix(alarms[i], fmt.Sprintf(" of rank %d changed in memory: the step is computed again", i%2)) {
					t.Errorf("%s: alarms %q, want %q", p.kind, alarms, want)
				}
			}
			if len(alarms) > len(c.places) {
				t.Errorf("alarms %q", alarms)
			}
			sameState(t, c.moment, cfg, undisturbed, cfg.Steps)
		})
	}
}

// Two attempts with a damaged table must not outvote one without damage.
func TestReplayWithDamagedTable(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, func(c *config.Config) { c.Guard.Memory, c.Guard.Replay, c.SaveEvery = 0, 1, 0 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		cfg := undisturbed
		cfg.Out = filepath.Join(t.TempDir(), "run")
		var attempts tries
		got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
			if !computed && r.comm.Rank() == 1 && r.Progress.Step == 3 && attempts.next(r) == attempt {
				flipKind(t, rand.New(rand.NewPCG(8, 1)), r, "tensor.RotaryTable.sin")
			}
		})
		want := []string{"step 4: a rotary table of rank 1 changed in memory: the step is computed again"}
		if err != nil || !slices.Equal(got.texts(), want) {
			t.Errorf("attempt %d: %v, alarms %q, want %q", attempt, err, got.texts(), want)
		}
		sameState(t, "replayed", cfg, undisturbed, cfg.Steps)
	}
}

// Settings that change while an update reads them, after they were checked, end the run.
func TestSettingsInUpdate(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, nil)
	job, err := Prepare(cfg, 2, "", &reports{})
	if err := cmp.Or(err, os.MkdirAll(cfg.Out, 0o777)); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	err = spmd.Goroutines{N: 2}.Run(func(c *collective.Comm) error {
		ex := tensor.NewExec()
		defer ex.Close()
		r, err := newRank(job, c, ex, 1)
		if err != nil {
			return err
		}
		defer r.Data.Loader.Close()
		if c.Rank() == 1 {
			r.Optim.ClipNorm /= 2
		}
		return r.stateGuard.AfterUpdate()
	})
	want := "the optimizer's state of rank 1 after step 0 has changed in memory: the settings of the optimizer: resume from the last checkpoint"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

// Gradients that change while other ranks read them are found.
func TestGradientsInSum(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, func(c *config.Config) { c.Guard.Activations = 1 })
	job, err := Prepare(cfg, 2, "", &reports{})
	if err := cmp.Or(err, os.MkdirAll(cfg.Out, 0o777)); err != nil {
		t.Fatal(err)
	}
	defer job.Close()
	err = spmd.Goroutines{N: 2}.Run(func(c *collective.Comm) error {
		ex := tensor.NewExec()
		defer ex.Close()
		r, err := newRank(job, c, ex, 1)
		if err != nil {
			return err
		}
		defer r.Data.Loader.Close()
		r.activations.Begin()
		_, err = r.passes()
		if err := cmp.Or(err, r.activations.Meet()); err != nil {
			return err
		}
		r.activations.Check(false)
		norms := r.Model.Groups[0]
		if r.lead() {
			norms.Grad.F32()[norms.ParamLen()-1] += 1 // which rank 1 sums
		}
		if _, err := r.Optim.Reduce(); err != nil {
			return err
		}
		r.activations.Check(true)
		if got, want := r.activations.Damage(), map[bool]string{true: "norm gradients"}[r.lead()]; got != want {
			t.Errorf("rank %d: damage %q, want %q", c.Rank(), got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A copy that has changed is made again. If memory and copy have changed, nothing tells which one
// is right.
func TestConstants(t *testing.T) {
	table, number := []int32{1, 2, 3}, 4.5
	var c guard.Constants
	c.List("table", table)
	c.List("number", &number)
	c.Take()
	for _, step := range []struct {
		damage  func()
		changed []string
		err     string
	}{
		{func() {}, nil, ""},
		{func() { table[1] ^= 64 }, []string{"table"}, ""},
		{func() { number = 3; table[0] = 0 }, []string{"table", "number"}, ""},
		{func() { c.Copies[13] ^= 1 }, nil, ""},
		{func() { c.Copies[13] ^= 1; number = 2 }, nil, "number and their copy have changed in memory"},
	} {
		step.damage()
		changed, err := c.Check()
		if !slices.Equal(changed, step.changed) || (err == nil) != (step.err == "") || err != nil && !strings.HasPrefix(err.Error(), step.err) {
			t.Errorf("changed %q, error %v, want %q and %q", changed, err, step.changed, step.err)
		}
		if err == nil && (!slices.Equal(table, []int32{1, 2, 3}) || number != 4.5) {
			t.Errorf("%v, %v", table, number)
		}
	}
}
