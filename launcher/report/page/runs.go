package page

// The page of runs: their results, the settings that differ, and their curves over each other. The
// page of a single run has more: see details.go.

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
)

// mostRuns is the maximum number of runs on a page.
const mostRuns = 64

// WriteRun writes the page of a run to its folder. reload is the number of seconds after which it
// will be written again; 0: never.
func WriteRun(folder string, reload float64) error {
	r, err := ReadRun(folder)
	if err != nil {
		return err
	}
	p := r.page()
	p.Reload = reload
	return p.Write(filepath.Join(folder, File))
}

// WriteRuns writes the page of several runs to a file.
func WriteRuns(path string, list []Run) error {
	if len(list) > mostRuns {
		return fmt.Errorf("%d runs are too many for one page: give at most %d", len(list), mostRuns)
	}
	return runsPage(filepath.Dir(path), list).Write(path)
}

// runsPage returns the page of some runs for a folder, from which its links begin.
func runsPage(folder string, list []Run) Page {
	c := newCharts(list)
	results := Table{Head: Cells("run", "validation loss", "best", "training loss", "steps", "tokens", "tokens/s", "MFU")}
	for i, about := range map[int]string{1: c.unit() + ", last", 3: "last 10 steps", 6: "median"} {
		results.Head[i].Small = about
	}
	for i, r := range list {
		results.Rows = append(results.Rows, r.row(folder, c.names[i], i+1, c.bits))
	}
	p := Page{Title: report.Plural(len(list), "run"), Sections: []Section{{"Results", []Block{{Table: &results}}}, differences(list, c.names)}}
	if c.bits {
		p.Lead = []string{"The tokenizers differ, so losses are in bits per byte. These are comparable for the same text."}
	}
	p.Sections = append(p.Sections, c.sections()...)
	return p
}

// charts draws curves of some runs over each other.
type charts struct {
	list  []Run
	names []string
	bits  bool // losses are in bits per byte, because the tokenizers differ
	x     Axis
	per   func(Run) float64 // from steps to values of x
}

func newCharts(list []Run) charts {
	c := charts{list: list, names: namesOf(list), x: Axis{Name: "step"}, per: func(Run) float64 { return 1 }}
	for _, r := range list {
		c.bits = c.bits || r.tokens() != list[0].tokens()
		if r.tokensPerStep() != list[0].tokensPerStep() {
			c.x, c.per = Axis{Name: "tokens (millions)"}, func(r Run) float64 { return r.tokensPerStep() / 1e6 }
		}
	}
	return c
}

// unit is the unit of losses.
func (c charts) unit() string {
	if c.bits {
		return "bits/byte"
	}
	return "nats/token"
}

// sections returns the sections that all runs have: losses, and the quantities with a figure.
func (c charts) sections() (list []Section) {
	add := func(section string, chart Chart) {
		if len(chart.Curves) == 0 && chart.Cells == nil {
			return
		}
		if n := len(list); n == 0 || list[n-1].Title != section {
			list = append(list, Section{section, []Block{{}}})
		}
		blocks := list[len(list)-1].Blocks
		blocks[0].Charts = append(blocks[0].Charts, chart)
	}
	for _, chart := range c.losses() {
		add("Loss", chart)
	}
	for _, section := range []string{"Loss", experts, "Speed and memory"} {
		for _, q := range record.Quantities {
			if q.Section != section {
				continue
			}
			y := Axis{Name: q.Unit, Log: q.Log}
			if !q.Log {
				y.Min = &q.Floor
			}
			curves := c.curves(func(r Run) Series { return quantity(&r.Log, q) })
			add(section, Chart{ID: q.Figure, Title: q.Title, Caption: q.Caption, X: c.x, Y: y, Smooth: true, Curves: curves})
		}
		if section == experts && len(c.list) == 1 {
			if chart, ok := c.list[0].loads(); ok {
				add(section, chart)
			}
		}
	}
	return list
}

// losses returns the charts of losses: one of a single run, because the gap between its curves says
// most, or one per kind.
func (c charts) losses() []Chart {
	train := c.curves(func(r Run) Series { return r.training().in(c.bits) })
	heldOut := c.curves(func(r Run) Series { return r.heldOut().in(c.bits) })
	for i := range heldOut {
		heldOut[i].Dots = true
	}
	chart := Chart{ID: "loss", Title: "Training loss", Wide: true, X: c.x, Y: Axis{Name: c.unit()}, Smooth: true, Curves: train}
	other := chart
	other.ID, other.Title, other.Curves = "validation", "Validation loss", heldOut
	if len(c.list) > 1 {
		return []Chart{chart, other}
	}
	for i := range train {
		train[i].Name = "training text"
	}
	for i := range heldOut {
		heldOut[i].Name, heldOut[i].Color = "validation text", 2
	}
	chart.Title, chart.Curves = "Loss", append(train, heldOut...)
	chart.Caption = "Thick lines are smoothed. A growing gap between training and validation loss means that the run memorizes its text."
	return []Chart{chart}
}

// curves returns a quantity of the runs that have it.
func (c charts) curves(quantity func(Run) Series) (curves []Curve) {
	for i, r := range c.list {
		curve, ok := Over([]Series{quantity(r)})
		if !ok {
			continue
		}
		for k := range curve.X {
			curve.X[k] *= c.per(r)
		}
		curve.Name, curve.Color, curve.Dash = c.names[i], i+1, (i+1)/Colors
		curves = append(curves, curve)
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

// row is the row of a run in the table of results.
func (r Run) row(folder, name string, color int, bits bool) []Cell {
	last := func(s Series) (end, least string) {
		if v := s.Finite(); len(v) > 0 {
			return report.Loss(v[len(v)-1]), report.Loss(slices.Min(v))
		}
		return report.Missing, report.Missing
	}
	validation, best := last(r.heldOut().in(bits))
	train, _ := last(r.training().in(bits).Trailing(10))
	speed, mfu := report.Missing, report.Missing
	if v := Steps(&r.Log, "tps").Finite(); len(v) > 0 {
		speed = report.Thousands(report.Median(v))
	}
	if v := Steps(&r.Log, "mfu").Finite(); len(v) > 0 {
		mfu = report.Percentage(report.Median(v), 1)
	}
	first := Cell{Text: name, Small: r.state(), Color: &color}
	if s := r.start(); s.Ranks > 0 {
		first.Small += fmt.Sprintf("\n%s on %s, %s, %s", report.Plural(s.Ranks, "rank"), s.CPU, report.Plural(s.Cores, "core"), s.Tier)
	}
	if _, err := os.Stat(filepath.Join(r.Folder, File)); err == nil {
		first.Link = relative(folder, filepath.Join(r.Folder, File))
	}
	return append([]Cell{first}, Cells(validation, best, train, report.Thousands(float64(r.made())),
		report.Thousands(float64(r.made())*r.tokensPerStep()), speed, mfu)...)
}

// relative returns the address of a file in a page of a folder; empty if there is none.
func relative(folder, path string) string {
	from, err := filepath.Abs(folder)
	to, failed := filepath.Abs(path)
	if err != nil || failed != nil {
		return ""
	}
	address, err := filepath.Rel(from, to)
	if err != nil {
		return ""
	}
	return "./" + filepath.ToSlash(address) // a name with a colon is no scheme
}

// differences is the section of the settings whose values differ between runs, by key. The folder
// of a run is not a setting.
func differences(list []Run, names []string) Section {
	values, keys := make([]map[string]string, len(list)), map[string]bool{}
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
	block := Block{Table: &table}
	if len(table.Rows) == 0 {
		block = Block{Text: "The runs have the same settings, except their folders."}
	}
	return Section{"Settings that differ", []Block{block}}
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
