package page

// The page of several runs: their results, settings that differ, and curves.

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// mostRuns is the maximum number of runs on a page.
const mostRuns = 64

// WriteRuns writes the page of several runs to a file.
func WriteRuns(path string, list []Run) error {
	if len(list) > mostRuns {
		return fmt.Errorf("%d runs are too many for one page: give at most %d", len(list), mostRuns)
	}
	return runsPage(filepath.Dir(path), list).Write(path)
}

// runsPage returns the page of some runs for a folder, from which its links begin.
func runsPage(folder string, list []Run) Page {
	names := namesOf(list)
	results := Table{Head: Cells("run", "validation loss", "best", "training loss", "steps", "tokens", "time of steps", "tokens/s", "MFU")}
	mixed := slices.ContainsFunc(list, func(r Run) bool { return r.tokens() != list[0].tokens() })
	for i, about := range map[int]string{1: unit(mixed) + ", last", 3: "last 10 steps", 7: "median"} {
		results.Head[i].Small = about
	}
	for i, r := range list {
		results.Rows = append(results.Rows, r.row(folder, names[i], i+1, mixed))
	}
	p := Page{Title: report.Plural(len(list), "run"), Sections: []Section{{"Results", []Block{{Table: &results}}}, differences(list, names)}}
	if !mixed && len(list) > 0 {
		p.Tokens = list[0].tokens()
	}
	x := axisOf(list)
	add := func(title string, charts ...Chart) {
		charts = slices.DeleteFunc(charts, func(c Chart) bool { return len(c.Curves) == 0 })
		if len(charts) > 0 {
			p.Sections = append(p.Sections, Section{title, []Block{{Charts: charts}}})
		}
	}
	add("Loss", losses(list, names, x, mixed)...)
	for _, q := range record.Quantities {
		if q.Compare != "" {
			c := Chart{ID: q.Figure, Title: q.Title, Caption: q.Caption, Wide: true, Y: axisFor(q), Smooth: true}
			c.Curves = x.curves(&c, list, names, func(r Run) Series { return Steps(&r.Log, q.JSON) })
			add(q.Compare, c)
		}
	}
	return p
}

// unit is the unit of losses.
func unit(mixed bool) string {
	if mixed {
		return "bits/byte"
	}
	return "nats/token"
}

// losses returns the charts of losses. Runs with different tokenizers are mixed: their losses are
// in bits per byte only, without those of runs whose record has none.
func losses(list []Run, names []string, x axis, mixed bool) (all []Chart) {
	tokenizers := "The tokenizer is the same in all runs, so losses per token are comparable."
	if mixed {
		tokenizers = "The tokenizers differ, so the losses are in bits per byte. These are comparable for the same text."
	}
	add := func(id, title, caption string, x axis, dots bool, of func(Run) (Series, float64)) {
		c := Chart{ID: id, Title: title, Caption: caption, Wide: true, Y: Axis{Name: unit(mixed)}, Smooth: !dots}
		c.Curves = x.curves(&c, list, names, func(r Run) Series {
			s, scale := of(r)
			return s.in(mixed, scale)
		})
		for i := range c.Curves {
			_, scale := of(list[slices.Index(names, c.Curves[i].Name)])
			if c.Curves[i].Dots = dots; !mixed {
				c.Curves[i].Scale = scale
			}
		}
		if !slices.ContainsFunc(c.Curves, func(c Curve) bool { return c.Scale == 0 }) {
			c.Other = "bits/byte"
		}
		all = append(all, c)
	}
	add("validation", "Validation loss", tokenizers, x, true, Run.heldOut)
	add("loss", "Training loss", "", x, false, Run.training)
	const shared = "Over the time of the steps, without evaluations and checkpoints. Runs that shared a machine were slower than alone."
	add("loss-time", "Training loss over time", shared, minutes, false, Run.training)
	return all
}

// training returns the training loss and its bits per byte of 1 nat per token; 0: unknown.
func (r Run) training() (Series, float64) {
	scale, _ := r.bitsPerNat()
	return Steps(&r.Log, "loss"), scale
}

// heldOut is training for the validation loss.
func (r Run) heldOut() (Series, float64) {
	_, scale := r.bitsPerNat()
	return HeldOut(&r.Log), scale
}

// in returns losses in bits per byte, or as they are. Those in bits per byte are NaN without a
// scale.
func (s Series) in(bits bool, scale float64) Series {
	switch {
	case !bits:
		return s
	case scale == 0:
		return s.Scaled(math.NaN())
	}
	return s.Scaled(scale)
}

// axis is what curves are drawn over.
type axis struct {
	name string
	at   func(r Run, steps Values) Values
}

// axisOf returns the axis of steps if the steps of all runs have the same number of tokens, or else
// that of tokens.
func axisOf(list []Run) axis {
	for _, r := range list {
		if r.tokensPerStep() != list[0].tokensPerStep() {
			return axis{"tokens (millions)", func(r Run, steps Values) Values {
				for i := range steps {
					steps[i] *= r.tokensPerStep() / 1e6
				}
				return steps
			}}
		}
	}
	return axis{"step", func(_ Run, steps Values) Values { return steps }}
}

// minutes is the axis of the time in which a run has trained, without evaluations and checkpoints.
var minutes = axis{"minutes of training", func(r Run, steps Values) Values {
	spent, next := 0.0, 0
	for i, step := range steps {
		for ; next < len(r.Log.Steps) && float64(r.Log.Steps[next].Step) <= step; next++ {
			spent += r.Log.Steps[next].Seconds / 60
		}
		steps[i] = spent
	}
	return steps
}}

// curves returns a quantity of the runs that have it, as curves of a chart over the axis.
func (x axis) curves(of *Chart, list []Run, names []string, quantity func(Run) Series) (curves []Curve) {
	of.X.Name = x.name
	for i, r := range list {
		if c, ok := curve(names[i], i+1, quantity(r)); ok {
			c.X, c.Dash = x.at(r, c.X), (i+1)/Colors
			curves = append(curves, c)
		}
	}
	return curves
}

// longest is the maximum number of characters of a name.
const longest = 28

// namesOf returns different names of the runs: those of their folders, or paths if names are equal.
// It shortens long ones at their beginning.
func namesOf(list []Run) (names []string) {
	for _, r := range list {
		names = append(names, r.name())
	}
	distinct := func() bool { return len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(names) }
	paths := !distinct()
	for i, r := range list {
		if paths {
			names[i] = filepath.ToSlash(filepath.Clean(r.Folder))
		}
		if text := []rune(report.Printable(names[i])); len(text) > longest {
			names[i] = "…" + string(text[len(text)-longest+1:])
		}
	}
	if !distinct() {
		for i := range names {
			names[i] = fmt.Sprintf("%d: %s", i+1, names[i])
		}
	}
	return names
}

// row is the row of a run in the table of results. Losses are in bits per byte if tokenizers are
// mixed, and in both units otherwise.
func (r Run) row(folder, name string, color int, mixed bool) []Cell {
	last := func(s Series, scale float64) (end, least Cell) {
		in := func(x float64) Cell {
			switch bits := report.Loss(x * scale); {
			case scale == 0 && mixed:
				return Cell{Text: report.Missing}
			case scale == 0:
				return Cell{Text: report.Loss(x)}
			case mixed:
				return Cell{Text: bits}
			default:
				return Cell{Text: report.Loss(x), Small: bits + " bits/byte"}
			}
		}
		if v := s.Finite(); len(v) > 0 {
			return in(v[len(v)-1]), in(slices.Min(v))
		}
		return Cell{Text: report.Missing}, Cell{Text: report.Missing}
	}
	validation, best := last(r.heldOut())
	loss, scale := r.training()
	train, _ := last(loss.Trailing(10), scale)
	seconds, speed, mfu := 0.0, report.Missing, report.Missing
	for _, s := range r.Log.Steps {
		seconds += s.Seconds
	}
	if v := r.speeds().Finite(); len(v) > 0 {
		speed = report.Thousands(report.Median(v))
	}
	if v := r.utilization().Finite(); len(v) > 0 {
		mfu = fmt.Sprintf("%.1f%%", report.Median(v))
	}
	first := Cell{Text: name, Small: r.state(), Link: r.link(folder), Color: &color}
	if n := len(r.Log.Starts); n > 0 {
		s := r.Log.Starts[n-1]
		first.Small += fmt.Sprintf("\n%s on %s, %s, %s", report.Plural(s.Ranks, "rank"), s.CPU, report.Plural(s.Cores, "core"), s.Tier)
	}
	clock := report.Clock(time.Duration(min(seconds, math.MaxInt64/1e9-1) * float64(time.Second)))
	return append([]Cell{first, validation, best, train}, Cells(report.Thousands(float64(r.made())),
		report.Thousands(float64(r.made())*r.tokensPerStep()), clock, speed, mfu)...)
}

// link returns the address of a run's report in a page of a folder; empty if there is none.
func (r Run) link(folder string) string {
	path := filepath.Join(r.Folder, File)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	from, err := filepath.Abs(folder)
	to, failed := filepath.Abs(path)
	if err != nil || failed != nil {
		return ""
	}
	relative, err := filepath.Rel(from, to)
	if err != nil {
		return ""
	}
	return "./" + filepath.ToSlash(relative) // a name with a colon is no scheme
}

// differences is the section of the settings whose values differ between runs, by key. The folder
// of a run is not a setting.
func differences(list []Run, names []string) Section {
	values := make([]map[string]string, len(list))
	keys := map[string]bool{}
	for i, r := range list {
		values[i] = map[string]string{}
		var root map[string]any
		if toml.Unmarshal([]byte(r.Config), &root) == nil {
			flatten("", root, values[i])
		}
		for key := range values[i] {
			keys[key] = true
		}
	}
	delete(keys, "out")
	table := Table{Head: Cells(append([]string{"setting"}, names...)...)}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		row := Cells(key)
		for i := range list {
			value, ok := values[i][key]
			if !ok {
				value = report.Missing
			}
			row = append(row, Cell{Text: value})
		}
		if len(slices.Compact(slices.Clone(row[1:]))) > 1 {
			table.Rows = append(table.Rows, row)
		}
	}
	if len(table.Rows) == 0 {
		return Section{"Settings that differ", []Block{{Text: "The runs have the same settings, except their folders."}}}
	}
	return Section{"Settings that differ", []Block{{Table: &table}}}
}

// flatten adds the values of a table to flat by their full keys, such as optimizer.lr.
func flatten(prefix string, table map[string]any, flat map[string]string) {
	for key, value := range table {
		if inner, ok := value.(map[string]any); ok {
			flatten(prefix+key+".", inner, flat)
		} else {
			flat[prefix+key] = fmt.Sprint(value)
		}
	}
}
