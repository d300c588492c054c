package convergence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// essence is a result as text without what differs each time: folders and speeds.
func essence(t *testing.T, r Result) string {
	t.Helper()
	for i := range r.Arms {
		a := &r.Arms[i]
		a.Speed, a.Times = 0, nil
		for j := range a.Runs {
			a.Runs[j].Speed, a.Runs[j].Folder = 0, ""
		}
	}
	r.Setup.Config, r.Setup.Jobs, r.Plan = "", 0, "" // the plan has settings without effect
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A comparison goes on by the rules of the version that has begun it; without data_rules these are
// the first.
func TestPlanWithoutRules(t *testing.T) {
	c := tiny(t, "unread", 40, "bf16,mxfp8")
	for _, want := range []config.Config{{DataRules: 3}, {DataRules: 2}, {DataRules: 1}} {
		c.Config.DataRules = 3
		plan, err := c.plan()
		if err != nil {
			t.Fatal(err)
		}
		of := fmt.Sprintf("data_rules = %d\n", want.DataRules)
		if want.DataRules == 1 {
			of = ""
		}
		plan = []byte(strings.Replace(string(plan), "data_rules = 3\n", of, 1))
		if err := errors.Join(os.MkdirAll(c.Out, 0o777), os.WriteFile(filepath.Join(c.Out, planFile), plan, 0o666), c.checkFolder()); err != nil ||
			c.Config.DataRules != want.DataRules {
			t.Errorf("rules %d, want %d, %v", c.Config.DataRules, want.DataRules, err)
		}
	}
}

// history notes which runs are started, and from where.
type history []string

func (h *history) start(ctx context.Context, job *trainer.Job, s Settings) error {
	from := ""
	if s.From != "" {
		from = " from " + filepath.Base(s.From)
	}
	run, err := filepath.Rel(filepath.Dir(filepath.Dir(s.Config.Out)), s.Config.Out)
	*h = append(*h, run+from)
	return errors.Join(err, inThisProcess(ctx, job, s))
}

// at is the console of a comparison that ends a context when a line has come that begins so.
type at struct {
	line string
	end  func()
}

func (a at) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), a.line) {
		a.end()
	}
	return len(b), nil
}

// What is cut off in the middle, between runs and within one, and gone on with is what is left
// alone, and no run is made twice.
func TestGoOn(t *testing.T) {
	t.Parallel()
	data := text(t)
	whole := tiny(t, data, 10, "bf16,mxfp8")
	whole.Design, whole.Config.Optimizer.LR = design.Fixed(0.005, 2), 3e-3
	var all history
	whole.Start, whole.KeepState = all.start, true
	want := finish(t, whole)
	if _, err := os.Stat(filepath.Join(whole.Out, "mxfp8/seed-2/step-00000010")); err != nil {
		t.Errorf("no state was kept: %v", err)
	}
	if order := []string{"bf16/seed-1", "mxfp8/seed-1", "bf16/seed-2", "mxfp8/seed-2"}; !slices.Equal(all, order) {
		t.Errorf("runs are made in the order %q, want %q", all, order)
	}

	cut := tiny(t, data, 10, "bf16,mxfp8")
	cut.Design, cut.Config.Optimizer.LR = whole.Design, 3e-3
	cut.Config.SaveEvery = 4
	var parts history
	between, stop := context.WithCancel(t.Context())
	cut.Start, cut.Console = parts.start, at{"[1/4]", stop}
	if _, err := cut.Run(between); !errors.Is(err, events.ErrInterrupted) || len(parts) != 1 {
		t.Fatalf("interrupted after the first run: %v, runs %q", err, parts)
	}
	// In the middle of a run, without a word: the checkpoint of step 4 is what is left, and the
	// record is ahead of it.
	cut.Start = func(ctx context.Context, _ *trainer.Job, s Settings) error {
		job, err := trainer.Prepare(s.Config, 2, s.From, &stopper{reporter: s.Report.(*reporter), at: 6})
		if err != nil {
			return err
		}
		return job.Run(ctx, spmd.Goroutines{N: 2})
	}
	if _, err := cut.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "mxfp8, seed 1") ||
		!strings.Contains(err.Error(), "cut off") {
		t.Fatalf("cut off in the second run: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(cut.Out, "*/*/step-*")); len(names) != 1 || filepath.Base(names[0]) != "step-00000004" {
		t.Fatalf("checkpoints: %q", names)
	}
	// Once more in the middle, by the user: the run saves and ends after the step under way.
	cut.Start = parts.start
	within, stop := context.WithCancel(t.Context())
	stop()
	cut.Start = func(_ context.Context, job *trainer.Job, s Settings) error { return parts.start(within, job, s) }
	if _, err := cut.Run(t.Context()); !errors.Is(err, events.ErrInterrupted) {
		t.Fatalf("interrupted in the second run: %v", err)
	}
	cut.Start = parts.start
	got := finish(t, cut)
	made := []string{"bf16/seed-1", "mxfp8/seed-1 from step-00000004", "mxfp8/seed-1 from step-00000005", "bf16/seed-2", "mxfp8/seed-2"}
	if !slices.Equal(parts, made) {
		t.Errorf("runs were made as %q, want %q", parts, made)
	}
	if a, b := essence(t, want), essence(t, got); a != b {
		t.Errorf("in one go\n%s\nin parts\n%s", a, b)
	}
	if names, _ := filepath.Glob(filepath.Join(cut.Out, "*/*/step-*")); len(names) != 0 {
		t.Errorf("finished runs have kept %q", names)
	}

	// There is nothing left to do, with several jobs at a time just as little.
	before := len(parts)
	cut.Jobs = 3
	if again := finish(t, cut); essence(t, again) != essence(t, got) || len(parts) != before {
		t.Errorf("made again: %q", parts[before:])
	}
}

// stopper fails a run after a step, as a crash would.
type stopper struct {
	*reporter
	at int
}

func (s *stopper) Step(step events.Step) {
	if step.Step == s.at {
		panic("cut off")
	}
}

// Runs side by side are the runs one after the other.
func TestJobs(t *testing.T) {
	t.Parallel()
	data := text(t)
	one := tiny(t, data, 6, "bf16,mxfp8,bf16+standard")
	one.Design, one.Config.Optimizer.LR = design.Fixed(0.005, 2), 3e-3
	want := finish(t, one)
	two := tiny(t, data, 6, "bf16,mxfp8,bf16+standard")
	two.Design, two.Config.Optimizer.LR, two.Jobs = one.Design, 3e-3, 4
	got := finish(t, two)
	if a, b := essence(t, want), essence(t, got); a != b {
		t.Errorf("one after the other\n%s\nside by side\n%s", a, b)
	}
	// All exchanges give the same losses.
	if d := got.Arms[2].Train; got.Arms[2].Verdict != Equivalent || d.Mean != 0 || d.SD != 0 || d.P != 0 {
		t.Errorf("another exchange: %s, %+v", got.Arms[2].Verdict, d)
	}
	// All start from the same weights and see the same tokens: the first loss of a seed is that of
	// all, up to rounding.
	for i, run := range got.Arms[0].Runs {
		if first, second := run.Log.Steps[0].Loss, got.Arms[1].Runs[i].Log.Steps[0].Loss; first/second < 0.995 || first/second > 1.005 || first == second {
			t.Errorf("seed %d begins with losses of %v and %v", run.Seed, first, second)
		}
	}
	if a, b := got.Arms[0].Runs[0].Log.Steps[0].Loss, got.Arms[0].Runs[1].Log.Steps[0].Loss; a == b {
		t.Error("two seeds are the same run")
	}
}

// What keeps a comparison from being run or gone on with is said before anything is written.
func TestCheck(t *testing.T) {
	t.Parallel()
	data := text(t)
	begun := tiny(t, data, 4, "bf16,mxfp8")
	begun.Design = design.Fixed(0.005, 2)
	finish(t, begun)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Comparison)
		want   []string // nil: it goes on
	}{
		"no seeds":       {func(c *Comparison) { c.Design = design.Fixed(0.005, 0) }, []string{"the comparison has 0 seeds"}},
		"no margin":      {func(c *Comparison) { c.Design.Margin = 0 }, []string{"--margin is 0"}},
		"no jobs":        {func(c *Comparison) { c.Jobs = 0 }, []string{"--jobs is 0"}},
		"no record":      {func(c *Comparison) { c.Config.RecordEvery = 0 }, []string{"record_every is 0"}},
		"several":        {func(c *Comparison) { c.Design.Margin, c.Jobs = -1, -2 }, []string{"--margin is -100", "--jobs is -2"}},
		"new, bad batch": {func(c *Comparison) { c.Out, c.Config.Batch = c.Out+"new", 3 }, []string{"bf16, seed 1:", "batch is 3"}},
		"new, last seed too large": {func(c *Comparison) {
			c.Out, c.Config.Seed = c.Out+"new", math.MaxInt64
		}, []string{"bf16, seed 9223372036854775808:", "largest that TOML holds"}},
		"new, bad for one arm": {func(c *Comparison) {
			c.Out, c.Config.EPExchange, c.Recipes = c.Out+"new", "standard", recipes(t, "bf16,mxfp8+wire")
		}, []string{"mxfp8+wire, seed 1:", "needs ep_exchange onesided"}},
		"other files":    {func(c *Comparison) { c.Out = other }, []string{"holds no comparison", "another --out"}},
		"other steps":    {func(c *Comparison) { c.Config.Steps = 5 }, []string{"steps is 4, not 5", "another --out"}},
		"other model":    {func(c *Comparison) { c.Config.Model.Dim = 96 }, []string{"model.dim is 64, not 96"}},
		"other schedule": {func(c *Comparison) { c.Config.Optimizer.LR = 1 }, []string{"optimizer.lr is 0.0005, not 1"}},
		"other seeds":    {func(c *Comparison) { c.Design = design.Fixed(0.005, 4) }, []string{"seeds is [1 2], not [1 2 3 4]"}},
		"other seed":     {func(c *Comparison) { c.Config.Seed = 4 }, []string{"seed is 1, not 4"}},
		"other margin":   {func(c *Comparison) { c.Design.Margin = 0.01 }, []string{"margin is 0.5, not 1"}},
		"other looks": {func(c *Comparison) {
			c.Design = twoLooks(2)
			c.Design.Margin = 0.005
		}, []string{"tests.difference_levels is [0.025], not [0.02 0.02]"}},
		"other ranks":    {func(c *Comparison) { c.Ranks = 4 }, []string{"ranks is 2, not 4"}},
		"other data":     {func(c *Comparison) { c.Config.Data = nil }, []string{"data is"}},
		"other arms":     {func(c *Comparison) { c.Recipes = recipes(t, "bf16,mxint8") }, []string{"precision is [bf16 mxfp8], not [bf16 mxint8]"}},
		"other baseline": {func(c *Comparison) { c.Recipes = recipes(t, "mxfp8,bf16") }, []string{"precision is [bf16 mxfp8], not [mxfp8 bf16]"}},

		"the same":    {func(c *Comparison) {}, nil},
		"other place": {func(c *Comparison) { c.Config.Threads, c.Config.SaveEvery, c.Jobs, c.Config.Out = 1, 3, 2, "x" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			changed := *begun
			c.change(&changed)
			err := changed.Check()
			if (err == nil) != (c.want == nil) {
				t.Fatalf("%v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if _, err := os.Stat(begun.Out + "new"); !errors.Is(err, fs.ErrNotExist) {
				t.Error("something was written")
			}
		})
	}

	// A plan or a record that cannot be read is named.
	run := begun.config(begun.Recipes[0], 1).Out
	for _, path := range []string{filepath.Join(begun.Out, planFile), filepath.Join(run, record.File)} {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("= garbage\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := begun.Check(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("damaged %s: %v", path, err)
		}
		if err := os.WriteFile(path, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

func recipes(t *testing.T, list string) []Recipe {
	t.Helper()
	all, err := ParseRecipes(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
