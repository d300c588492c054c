package convergence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/trainer"
)

// decomposed is the decomposition of two arms with made-up losses. Each cell's loss is that of its
// numbers and its routes.
func decomposed(t *testing.T, final func(numbers, routes string, seed uint64) (train, heldOut float64)) Arm {
	t.Helper()
	r := madeBy(t, func(c *Comparison) { c.Decompose = true }, "bf16,mxfp8", "", 3, func(arm string, seed uint64) (float64, float64) {
		numbers, routes, crossed := strings.Cut(arm, "@")
		if !crossed {
			routes = numbers
		}
		return final(numbers, routes, seed)
	})
	return r.Arms[1]
}

// Known effects of numbers, of routes and of foreign routes come out as the parts.
func TestParts(t *testing.T) {
	const numbers, routes, foreign = 0.03, 0.05, 0.2
	noise := []float64{0, 0.01, -0.01} // of the effect of numbers, by seed
	arm := decomposed(t, func(n, r string, seed uint64) (train, heldOut float64) {
		loss := 2.0
		if n == "mxfp8" {
			loss += numbers + noise[seed-1]
		}
		if r == "mxfp8" {
			loss += routes
		}
		if n != r {
			loss += foreign
		}
		return loss, 2 * loss
	})
	want := map[string]float64{
		"total": numbers + routes, "numbers": numbers, "routes": routes, "interaction": -2 * foreign,
		"numbers, baseline's routes": numbers + foreign, "numbers, recipe's routes": numbers - foreign,
		"routes, baseline's numbers": routes + foreign, "routes, recipe's numbers": routes - foreign,
	}
	if n := len(arm.Parts()); n != len(want) {
		t.Fatalf("%d parts", n)
	}
	for _, part := range arm.Parts() {
		for _, d := range []*Difference{part.Train, part.HeldOut} {
			if mean := want[part.Name] / 2; math.Abs(d.Mean-mean) > 1e-6 {
				t.Errorf("%s is %v, want %v", part.Name, d.Mean, mean)
			}
			half := 0.0
			if slices.Contains([]string{"total", "numbers", "numbers, baseline's routes", "numbers, recipe's routes"}, part.Name) {
				// Student's t with 2 degrees of freedom has its quantile of 1 - 0.0125 at 6.2053.
				half = 6.2053 * 0.005 / math.Sqrt(3)
			}
			if got := (d.CI95[1] - d.CI95[0]) / 2; math.Abs(got-half) > 1e-5 {
				t.Errorf("%s: the interval is %v, its half %v, want %v", part.Name, d.CI95, got, half)
			}
		}
	}
}

// A run that diverged leaves no parts, and the table says so.
func TestPartsOfDivergence(t *testing.T) {
	arm := decomposed(t, func(n, r string, seed uint64) (train, heldOut float64) {
		if n == "bf16" && r == "mxfp8" && seed == 2 {
			return math.NaN(), 2
		}
		return 2, 2
	})
	var out strings.Builder
	writeParts(&out, arm, Arm{Name: "bf16"})
	if arm.Decomposition == nil || arm.Parts() != nil || !strings.Contains(out.String(), "a run has diverged") {
		t.Errorf("%+v\n%s", arm.Decomposition, out.String())
	}
}

// Two recipes of the same bits choose the same routes, so every part is exactly zero. That holds
// for concurrent runs too, and no file of routes is left.
func TestDecomposeSameBits(t *testing.T) {
	t.Parallel()
	c := tiny(t, text(t), 6, "bf16,bf16+standard")
	c.Decompose, c.Jobs, c.Config.Optimizer.LR = true, 3, 3e-3
	c.Design.Looks[0].Seeds = 2
	r := finish(t, c)
	for _, part := range r.Arms[1].Parts() {
		if slices.ContainsFunc(slices.Concat(part.Train.Pairs, part.HeldOut.Pairs), func(p float64) bool { return p != 0 }) {
			t.Errorf("%s is %v and %v, want 0", part.Name, part.Train.Pairs, part.HeldOut.Pairs)
		}
	}
	if n := len(r.Arms[1].Parts()); n != 8 {
		t.Errorf("%d parts", n)
	}
	if left, err := filepath.Glob(filepath.Join(c.Out, "*", "*", trainer.RoutesFile)); err != nil || left != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}

// The crossed runs follow the routes of the other recipe with the same seed. They are made after
// its runs, also if the comparison is interrupted between them, and are not made twice.
func TestDecomposeRoutes(t *testing.T) {
	t.Parallel()
	c := tiny(t, text(t), 6, "bf16,mxfp8")
	c.Design.Looks[0].Seeds = 1
	c.Decompose, c.Config.RecordRoutes, c.Config.Optimizer.LR = true, true, 3e-3
	var runs history
	c.Start = runs.start
	within, end := context.WithCancel(t.Context())
	c.Console = at{"[2/4]", end}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(within); !errors.Is(err, trainer.ErrInterrupted) || len(runs) != 2 {
		t.Fatalf("interrupted after %q: %v", runs, err)
	}
	c.Console = io.Discard
	r := finish(t, c)
	want := []string{"bf16/seed-1", "mxfp8/seed-1", "mxfp8@bf16/seed-1", "bf16@mxfp8/seed-1"}
	if !slices.Equal(runs, want) {
		t.Fatalf("runs were made as %q, want %q", runs, want)
	}
	d := r.Arms[1].Decomposition
	final := map[float64]bool{}
	for _, run := range []Run{r.Arms[0].Runs[0], r.Arms[1].Runs[0], d.Numbers[0], d.Routes[0]} {
		final[float64(run.Train)] = true
	}
	if len(final) != 4 {
		t.Errorf("%d different losses of 4 runs", len(final))
	}
	for _, name := range []string{"bf16", "mxfp8"} {
		if _, err := os.Stat(filepath.Join(c.folder(name, 1), trainer.RoutesFile)); err != nil {
			t.Errorf("record_routes does not keep the routes: %v", err)
		}
	}
	if again := finish(t, c); len(runs) != 4 || essence(t, again) != essence(t, r) {
		t.Errorf("continued, runs %q", runs[4:])
	}
}

// A file of routes is there until its last use, and a run waits for the file that it replays.
func TestRouteFiles(t *testing.T) {
	c := tiny(t, "unread", 4, "bf16,mxfp8,mxint8")
	c.Decompose = true
	tasks := c.tasksOf(c.withCrossed(c.Recipes), 0, 1)
	files := c.newRouteFiles(tasks)
	within, end := context.WithTimeout(t.Context(), 10*time.Second)
	defer end()
	var left []string
	for _, task := range tasks {
		if task.recipe.routes == "" {
			path := filepath.Join(task.cfg.Out, trainer.RoutesFile)
			if err := errors.Join(os.MkdirAll(task.cfg.Out, 0o777), os.WriteFile(path, nil, 0o666)); err != nil {
				t.Fatal(err)
			}
		} else if files.wait(within, task) != nil {
			t.Fatalf("%s waits for routes that were recorded", task)
		}
		if err := files.finished(task); err != nil {
			t.Fatal(err)
		}
		there, err := filepath.Glob(filepath.Join(c.Out, "*", "*", trainer.RoutesFile))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, fmt.Sprint(task.recipe.Name, " ", len(there)))
	}
	want := []string{"bf16 1", "mxfp8 2", "mxint8 3", "mxfp8@bf16 3", "bf16@mxfp8 2", "mxint8@bf16 1", "bf16@mxint8 0"}
	if !slices.Equal(left, want) {
		t.Errorf("files after each run: %q, want %q", left, want)
	}

	end()
	if err := c.newRouteFiles(tasks).wait(within, tasks[3]); !errors.Is(err, trainer.ErrInterrupted) {
		t.Errorf("a wait that is interrupted: %v", err)
	}
}

// The plan states the parts. A comparison cannot be continued with or without them at will.
func TestDecompositionPlan(t *testing.T) {
	c := tiny(t, text(t), 4, "bf16,mxfp8")
	plain, err := c.plan()
	if err != nil || strings.Contains(string(plain), "decomposition") {
		t.Errorf("%v\n%s", err, plain)
	}
	c.Decompose = true
	if _, err := c.saveFolder(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.Out, planFile))
	for _, want := range []string{"[decomposition]", "recipe on baseline", "interaction", "[-0.5, 0.5, -0.5, 0.5]"} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: the plan lacks %q:\n%s", err, want, text)
		}
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	c.Decompose = false
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "decomposition") {
		t.Errorf("without --decompose: %v", err)
	}
	c.Decompose, c.Config.ReplayRoutes = true, "routes.arrow"
	if err := c.Check(); err == nil || !strings.Contains(err.Error(), "leave --replay-routes out") {
		t.Errorf("with routes of another run: %v", err)
	}
}

// A result keeps its parts as JSON.
func TestPartsJSON(t *testing.T) {
	arm := decomposed(t, func(n, r string, seed uint64) (train, heldOut float64) { return 2, 3 })
	text, err := json.Marshal(arm)
	var back Arm
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if err != nil || len(back.Parts()) != 8 || len(back.Decomposition.Routes) != 3 {
		t.Errorf("%v: %s", err, text)
	}
}
