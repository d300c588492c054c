package convergence

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/mx"
)

// console is a console that calls a function with each line.
type console func(line string)

func (c console) Write(b []byte) (int, error) {
	c(string(b))
	return len(b), nil
}

// A comparison that is interrupted between two runs and within one comes to the numbers of one that
// is left alone. No run is made twice, and the losses of all steps stay.
func TestResume(t *testing.T) {
	t.Parallel()
	data := text(t)
	comparison := func() *Comparison {
		c := tiny(t, data, 10, "bf16,mxfp8,bf16+null")
		c.Seeds, c.Config.SaveEvery, c.Config.Optimizer.LR = 2, 4, 3e-3
		return c
	}
	whole := comparison()
	whole.Jobs = 3 // side by side: the same numbers
	want := finish(t, whole)

	cut := comparison()
	if err := cut.Check(); err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, within := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		cut.prepared = func(task task, _ *trainer.Job) {
			if runs = append(runs, task.String()); within {
				stop() // the run saves after the step under way
			}
		}
		cut.Console = console(func(line string) {
			if strings.HasPrefix(line, "[1/6]") && !within {
				stop()
			}
		})
		if _, err := cut.Run(ctx); !errors.Is(err, events.ErrInterrupted) {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(cut.Out, ResultFile)); err == nil {
			t.Error("there is a result before the end")
		}
	}
	cut.prepared = func(task task, _ *trainer.Job) { runs = append(runs, task.String()) }
	cut.Console = console(func(string) {})
	got := finish(t, cut)
	for i, a := range got.Arms {
		if !reflect.DeepEqual(a.Train, want.Arms[i].Train) || !reflect.DeepEqual(a.HeldOut, want.Arms[i].HeldOut) {
			t.Errorf("%s in one go\n%+v\nin parts\n%+v", a.Name, want.Arms[i], a)
		}
	}
	if names, _ := filepath.Glob(filepath.Join(cut.Out, "*/*/step-*")); len(names) != 0 {
		t.Errorf("finished runs have kept %q", names)
	}
	first := []string{"bf16, seed 1", "mxfp8, seed 1", "bf16+null, seed 1", "bf16, seed 2", "mxfp8, seed 2", "bf16+null, seed 2"}
	finish(t, cut)
	if again := len(runs) - len(first); again != 1 || !slices.Equal(slices.Compact(runs), first) {
		t.Errorf("runs were made as %q", runs)
	}
	if log := got.Arms[1].Runs[0].log; len(log.Steps) != 10 {
		t.Errorf("the record has %d steps", len(log.Steps))
	}
	// All arms start from the same weights and read the same tokens, and seeds differ.
	base, null := got.Arms[0].Runs, got.Arms[2].Runs
	if a, b := base[0].log.Steps[0].Loss, null[0].log.Steps[0].Loss; a != b || base[1].log.Steps[0].Loss == a {
		t.Errorf("the first losses are %v and %v, with the other seed %v", a, b, base[1].log.Steps[0].Loss)
	}
	if d := got.Arms[2].Train; d.Mean == 0 || math.Abs(d.Mean) > 1e-3 {
		t.Errorf("the null arm differs by %g", d.Mean)
	}
}

// What prevents a comparison from running or resuming is reported before anything is written.
func TestCheck(t *testing.T) {
	t.Parallel()
	data := text(t)
	begun := tiny(t, data, 4, "bf16,mxfp8,bf16+null")
	begun.Seeds, begun.Config.DataRules = 1, int(datasets.NewestRules)-1
	finish(t, begun)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	earlier := t.TempDir()
	old := "precision = ['bf16', 'mxfp8']\nmargin = 0.5\nseeds = [1]\n[config]\nsteps = 4\n[tests]\nalpha = 0.05\nlooks = [1]\n"
	if err := os.WriteFile(filepath.Join(earlier, planFile), []byte(old), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Comparison)
		want   string // empty: it goes on
	}{
		"no seeds":        {func(c *Comparison) { c.Seeds = 0 }, "--seeds is 0"},
		"no margin":       {func(c *Comparison) { c.Margin = 0 }, "--margin is 0"},
		"new, bad batch":  {func(c *Comparison) { c.Out, c.Config.Batch = c.Out+"new", 3 }, "batch is 3"},
		"other files":     {func(c *Comparison) { c.Out = other }, "holds no comparison"},
		"earlier version": {func(c *Comparison) { c.Out = earlier }, "give another --out"},
		"other steps":     {func(c *Comparison) { c.Config.Steps = 5 }, `has "losses = `},
		"other seeds":     {func(c *Comparison) { c.Seeds = 4 }, `"seeds = [1]", not "seeds = [1, 2, 3, 4]"`},
		"other arms":      {func(c *Comparison) { c.Arms = arms(t, "bf16,mxint8,bf16+null") }, "not \"arms = ['bf16', 'mxint8', 'bf16+null']\""},
		"the same":        {func(c *Comparison) {}, ""},
		"other place":     {func(c *Comparison) { c.Config.Threads, c.Config.SaveEvery, c.Jobs, c.Config.Out = 1, 3, 2, "x" }, ""},
		"newer rules":     {func(c *Comparison) { c.Config.DataRules++ }, ""},
		"other rules":     {func(c *Comparison) { c.Config.DataRules-- }, `"data_rules = 2", not "data_rules = 1"`},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *begun
			c.change(&changed)
			if err := changed.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := os.Stat(begun.Out + "new"); !errors.Is(err, fs.ErrNotExist) {
				t.Error("something was written")
			}
		})
	}
	for _, path := range []string{filepath.Join(begun.Out, "bf16/seed-1", record.File), filepath.Join(begun.Out, planFile)} {
		if err := os.WriteFile(path, []byte("= garbage\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := begun.Check(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("damaged %s: %v", path, err)
		}
		os.Remove(path)
	}
}

// The tests find a fault: of arms that differ in nothing else, the one whose block scales are a
// binade too high is different, and the others are equivalent.
func TestBrokenRecipes(t *testing.T) {
	t.Parallel()
	c := tiny(t, text(t), 40, "bf16,mxfp8,mxfp8,bf16+null")
	c.Arms[2].Name, c.Margin, c.Jobs = "broken", 0.01, 2 // the validation text is short
	c.prepared = func(t task, job *trainer.Job) {
		if t.arm.Name != "broken" {
			return
		}
		job.Disturb = func(q moe.Quantized) {
			for _, form := range []mx.Tensor{q.Rows, q.Cols} {
				if !form.Codes.Valid() {
					continue
				}
				for i, scale := range form.Scales.U8() {
					form.Scales.U8()[i] = min(scale+1, mx.NaNScale-1)
				}
			}
		}
	}
	r, err := c.Run(t.Context()) // Check would find equal arms
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{Baseline, Equivalent, Different, Equivalent} {
		if a := r.Arms[i]; a.Verdict != want {
			t.Errorf("want %s: %s", want, r.Sentence(a))
		}
	}
}
