package trainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/observe"
)

// traced is an object of a trace, times in microseconds.
type traced struct {
	Name     string  `json:"name"`
	Category string  `json:"cat"`
	Phase    string  `json:"ph"`
	Time     float64 `json:"ts"`
	Duration float64 `json:"dur"`
	Process  int     `json:"pid"`
	Thread   int     `json:"tid"`
	Args     struct {
		Name    string `json:"name"`
		Layer   *int   `json:"layer"` // -1: none
		Shape   string `json:"shape"`
		Experts int    `json:"experts"`
		Busiest int    `json:"rows of the busiest expert"`
	} `json:"args"`
}

func (e traced) end() float64 { return e.Time + e.Duration }

// readTrace returns the slices of each row of a run's trace, in order, and the rows' names.
func readTrace(t *testing.T, run string) (rows map[int][]traced, names map[int]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, observe.TraceFile))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Unit   string   `json:"displayTimeUnit"`
		Events []traced `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &all); err != nil || all.Unit != "ms" {
		t.Fatalf("the trace is not what it should be: %v, unit %q", err, all.Unit)
	}
	rows, names = map[int][]traced{}, map[int]string{}
	slices.SortStableFunc(all.Events, func(a, b traced) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(b.Duration, a.Duration)) })
	for _, e := range all.Events {
		switch {
		case e.Phase == "X":
			rows[e.Thread] = append(rows[e.Thread], e)
		case e.Name == "thread_name":
			names[e.Thread] = e.Args.Name
		case e.Phase != "M":
			t.Errorf("an event of phase %q", e.Phase)
		}
	}
	return rows, names
}

// nested checks that slices of a row lie in each other or after each other, and hands each over
// with those that it lies in.
func nested(t *testing.T, row []traced, each func(e traced, in []traced)) {
	t.Helper()
	const rounding = 1e-4 // of a sum of two decimal numbers
	var open []traced
	for i, e := range row {
		if i > 0 && e.Time < row[i-1].Time {
			t.Fatalf("%s begins before %s, which stands above it", e.Name, row[i-1].Name)
		}
		for len(open) > 0 && open[len(open)-1].end() <= e.Time+rounding {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && e.end() > open[len(open)-1].end()+rounding {
			t.Fatalf("%s from %v to %v ends after %s, which ends at %v", e.Name, e.Time, e.end(), open[len(open)-1].Name, open[len(open)-1].end())
		}
		each(e, open)
		open = append(open, e)
	}
}

// traceRun trains on two ranks, with a profile and a trace of some steps.
func traceRun(t *testing.T, cfg config.Config, w observe.Window) *reports {
	t.Helper()
	r := &reports{}
	job, err := Prepare(cfg, 2, "", r)
	if err != nil {
		t.Fatal(err)
	}
	job.Profile, job.Trace = true, w
	if err := job.Run(t.Context(), spmd.Goroutines{N: 2}); err != nil {
		t.Fatal(err)
	}
	return r
}

// A trace has a row for each rank, whose slices are nested and say what they are of; its families
// take as long as the profile of the same steps says.
func TestTrace(t *testing.T) {
	t.Parallel()
	const ranks = 2
	cfg := tiny(t, func(c *config.Config) { c.EvalEvery, c.SaveEvery = 2, 3 })
	r := traceRun(t, cfg, observe.Window{First: 2, Last: 4}) // all that the profile counts
	rows, names := readTrace(t, cfg.Out)
	sums := map[string]float64{}
	layers := map[int]bool{}
	var earliest, steps []float64
	for rank := range ranks {
		if names[2*rank] != fmt.Sprintf("rank %d", rank) || len(rows[2*rank]) == 0 {
			t.Fatalf("row %d is %q, with %d slices", 2*rank, names[2*rank], len(rows[2*rank]))
		}
		var top []string
		nested(t, rows[2*rank], func(e traced, in []traced) {
			switch {
			case len(in) == 0:
				top = append(top, e.Name)
			case e.Category == "family" && len(in) == 1 && in[0].Category == "step":
				sums[e.Name] += e.Duration
			case e.Category == "waiting" && len(in) == 2 && in[1].Category == "family":
				sums["waiting"] += e.Duration
				sums[in[1].Name] -= e.Duration
			default:
				t.Errorf("%s of category %q lies in %d slices", e.Name, e.Category, len(in))
			}
			if e.Category == "step" {
				steps = append(steps, e.Duration)
			}
			if e.Args.Layer != nil && *e.Args.Layer >= 0 {
				layers[*e.Args.Layer] = true
			}
			if grouped := strings.Contains(e.Name, "grouped forward"); grouped && (e.Args.Experts != cfg.Model.Experts/ranks || e.Args.Busiest == 0 || strings.Contains(e.Args.Shape, " x 0")) {
				t.Errorf("%s: %+v", e.Name, e.Args)
			}
		})
		if want := []string{"step 2", "evaluation", "step 3", "checkpoint", "step 4"}; !slices.Equal(top, want) {
			t.Errorf("rank %d: at the top are %q, want %q", rank, top, want)
		}
		earliest = append(earliest, rows[2*rank][0].Time)
	}
	if apart := slices.Max(earliest) - slices.Min(earliest); apart > 1e7 {
		t.Errorf("the ranks begin at %v: they have different clocks", earliest)
	}
	if len(layers) != cfg.Model.Layers {
		t.Errorf("layers %v, want all %d", layers, cfg.Model.Layers)
	}
	p := r.prof[0]
	if p.Steps != 3 {
		t.Fatalf("the profile is of %d steps", p.Steps)
	}
	const rounding = 0.02 // microseconds: of integer divisions, and of what begins a step's slice
	for _, f := range p.Families {
		got, want := sums[f.Name]/(3*ranks), float64(f.Mean.Nanoseconds())/1e3
		if math.Abs(got-want) > rounding {
			t.Errorf("%s: %v microseconds a step in the trace, %v in the profile", f.Name, got, want)
		}
		delete(sums, f.Name)
	}
	for name, sum := range sums {
		if math.Abs(sum) > rounding {
			t.Errorf("%s takes %v in the trace, and nothing in the profile", name, sum)
		}
	}
}

// Without a window nothing is traced. One that the run does not reach, or reaches in part, has what
// there is of it.
func TestTraceWindow(t *testing.T) {
	t.Parallel()
	for w, want := range map[observe.Window]string{
		{}: "", {First: 9, Last: 12}: "", {First: 4, Last: 12}: "step 4", {First: 1, Last: 1}: "step 1", {First: 3, Last: 4}: "step 3 step 4",
	} {
		cfg := tiny(t, func(c *config.Config) { c.SampleTokens = 2 })
		traceRun(t, cfg, w)
		if want == "" {
			if _, err := os.Stat(filepath.Join(cfg.Out, observe.TraceFile)); err == nil {
				t.Errorf("%v: there is a trace", w)
			}
			continue
		}
		rows, _ := readTrace(t, cfg.Out)
		var steps []string
		for _, e := range rows[2] {
			if e.Category == "step" {
				steps = append(steps, e.Name)
			}
		}
		if got := strings.Join(steps, " "); got != want {
			t.Errorf("%v: %q, want %q", w, got, want)
		}
	}
}
