package overview

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/spmd"
)

//go:embed page.html
var pageText string

// experts is the section of figures that need the loads of experts.
const experts = "Experts"

// headings assign figures to sections.
var headings = []figure.Heading{
	heading("Loss", "tasks"),
	heading("Speed", "phases"),
	heading(experts, "loads", "bias"),
}

// heading returns a section with the figures of its quantities, and then some others.
func heading(title string, others ...string) figure.Heading {
	h := figure.Heading{Title: title}
	for _, q := range record.Quantities {
		if q.Section == title {
			h.Figures = append(h.Figures, q.Figure)
		}
	}
	h.Figures = append(h.Figures, others...)
	return h
}

// names returns the names of all figures, drawn or not.
func names() (all []string) {
	for _, h := range headings {
		all = append(all, h.Figures...)
	}
	return all
}

// view is the data of the template.
type view struct {
	Run
	Script   string // address; empty: none, because the page does not follow its run
	Sections []figure.Section
}

// page renders one of the templates "page" and "body".
func (r Run) page(name, script string, figures []figure.Figure) ([]byte, error) {
	t, err := template.New("").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	sections, err := figure.Sections(headings, figures)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, view{r, script, sections}); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	return []byte(figure.Printable(out.String())), nil
}

// Head returns the content of the page's head, except a script.
func (v view) Head() template.HTML { return figure.Head(v.Title()) }

// Title returns the name of the run's folder.
func (r Run) Title() string {
	path, err := filepath.Abs(r.Folder)
	if err != nil {
		path = r.Folder
	}
	return filepath.Base(path)
}

// State returns the state of the run in a few words. Class returns its CSS class.
func (r Run) State() string {
	switch {
	case r.Log.Done != nil:
		return "done"
	case r.Made() == 0:
		return "no step yet"
	case r.planned() > 0:
		return fmt.Sprintf("step %d of %d", r.Made(), r.planned())
	}
	return fmt.Sprintf("%s made", report.Plural(r.Made(), "step"))
}

func (v view) Class() string {
	if v.Log.Done != nil {
		return "equivalent"
	}
	return "undecided"
}

// fact is a number with its name.
type fact struct{ Name, Value, More string }

// Facts returns the most important numbers.
func (v view) Facts() (list []fact) {
	log := v.Log
	add := func(name, value, more string) { list = append(list, fact{name, value, more}) }
	if cfg := v.settings(); cfg.Flavor != "" {
		add("model", cfg.Flavor, "in "+cfg.Precision)
	}
	if n := len(log.Steps); n > 0 {
		first, last := log.Steps[0], log.Steps[n-1]
		recent := figure.Steps(&record.Log{Steps: log.Steps[max(0, n-10):]}, "loss").Trailing(10)
		add("training loss", figure.Loss(recent.Values[len(recent.Values)-1]), "nats/token, mean of the last 10 steps; first "+figure.Loss(float64(first.Loss)))
		steps := report.Thousands(float64(last.Step))
		if planned := v.planned(); planned > last.Step {
			steps += " of " + report.Thousands(float64(planned))
		}
		add("steps", steps, v.tokensText(last.Step))
	}
	if n := len(log.Evals); n > 0 {
		add("validation loss", figure.Loss(float64(log.Evals[n-1].Loss)), fmt.Sprintf("after step %d; first %s", log.Evals[n-1].Step, figure.Loss(float64(log.Evals[0].Loss))))
	}
	if speeds := v.Speeds().Finite(); len(speeds) > 0 {
		more := "median step"
		if shares := v.Utilization().Finite(); len(shares) > 0 {
			more = figure.Percentage(figure.Median(shares)/100, 1) + " of the machine’s measured peak (MFU)"
		}
		add("tokens/s", report.Thousands(figure.Median(speeds)), more)
	}
	if n := len(log.Starts); n > 0 {
		s := log.Starts[n-1]
		add("ranks", fmt.Sprint(s.Ranks), fmt.Sprintf("%s, %s, %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier))
	}
	if v.Projection != nil {
		list = append(list, v.Projection.fact())
	}
	skipped := 0
	for _, s := range log.Steps {
		if s.Skipped {
			skipped++
		}
	}
	if skipped > 0 {
		add("skipped steps", fmt.Sprint(skipped), "their gradients were not fit for use")
	}
	return list
}

// Columns returns the number of facts per row on a wide page: three, or four if one fact would be
// left over.
func (v view) Columns() int {
	if n := len(v.Facts()); n > 3 && n%3 == 1 {
		return 4
	}
	return 3
}

func (v view) tokensText(steps int) string {
	if v.TokensPerStep() == 0 {
		return ""
	}
	return report.Thousands(float64(steps)*v.TokensPerStep()) + " tokens"
}

// TokensPerStep returns the number of tokens of a step; 0 if unknown.
func (r Run) TokensPerStep() float64 {
	if len(r.Log.Starts) == 0 {
		return 0
	}
	return float64(r.Log.Starts[0].Tokens)
}

// phase is a row of the table of time by kind of work.
type phase struct{ Name, Milliseconds, Share, Width string }

// barWidth is the length of the longest bar in pixels.
const barWidth = 160

// Phases returns the table of time by kind of work, longest first; empty if nothing was measured.
func (v view) Phases() (list []phase) {
	t := v.Log.Times
	if t == nil || !(t.Seconds > 0) {
		return nil
	}
	families := slices.SortedFunc(maps.Keys(t.Families), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.Families[b], t.Families[a]), strings.Compare(a, b))
	})
	most := 0.0
	for _, name := range families {
		most = max(most, t.Families[name])
	}
	for _, name := range families {
		seconds := t.Families[name]
		list = append(list, phase{
			name, figure.Plain(1e3*seconds, 2), figure.Percentage(seconds/t.Seconds, 1), fmt.Sprintf("%.0f", barWidth*max(seconds, 0)/max(most, 1e-12)),
		})
	}
	return append(list, phase{"step", figure.Plain(1e3*t.Seconds, 2), "", "0"})
}

// eventRow is a row of the table of events.
type eventRow struct{ Time, What, Rank, Step, Reason string }

// mostEvents bounds the number of events that are shown. The last ones are shown.
const mostEvents = 200

// EventRows lists alarms and failures.
func (v view) EventRows() (list []eventRow) {
	for _, e := range v.Events[max(0, len(v.Events)-mostEvents):] {
		h := eventRow{Time: e.Time.UTC().Format(time.DateTime), What: strings.ReplaceAll(string(e.Kind), "_", " "), Reason: e.Reason}
		if e.Rank >= 0 {
			h.Rank = fmt.Sprint(e.Rank)
		}
		if e.Step >= 0 {
			h.Step = fmt.Sprint(e.Step)
		}
		if e.After > 0 && e.Reason == "" {
			h.Reason = fmt.Sprintf("%v after the failure was detected", e.After.Round(100*time.Microsecond))
		}
		list = append(list, h)
	}
	return list
}

// Sample returns the newest text that the model wrote; nil if there is none.
func (v view) Sample() *record.Sample {
	if n := len(v.Log.Samples); n > 0 {
		return &v.Log.Samples[n-1]
	}
	return nil
}

// mostSamples bounds the number of earlier samples that are shown. The last ones are shown.
const mostSamples = 50

// EarlierSamples returns the samples before the newest, the newer ones first.
func (v view) EarlierSamples() []record.Sample {
	n := max(len(v.Log.Samples)-1, 0)
	list := slices.Clone(v.Log.Samples[max(0, n-mostSamples):n])
	slices.Reverse(list)
	return list
}

// Earlier returns the number of events that are not listed.
func (v view) Earlier() int { return max(0, len(v.Events)-mostEvents) }

// Alarms returns the number of problems that the run survived, and Failures the number of ranks
// that it lost.
func (v view) Alarms() int   { return v.count(spmd.Alarm) }
func (v view) Failures() int { return v.count(spmd.Detected) }

func (v view) count(kind spmd.Kind) (n int) {
	for _, e := range v.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Machines lists the machines that the run used, each once.
func (v view) Machines() (list []string) {
	for _, s := range v.Log.Starts {
		text := fmt.Sprintf("%s, %s, %s; version %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier, s.Version)
		if s.Ranks > 0 {
			text += "; " + report.Plural(s.Ranks, "rank")
		}
		if s.Peak > 0 {
			text += fmt.Sprintf("; peak %.0f GFLOP/s measured", s.Peak/1e9)
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// Resumed says at which step the run was resumed, if it was.
func (v view) Resumed() string {
	var steps []string
	for _, s := range v.Log.Starts[min(1, len(v.Log.Starts)):] {
		steps = append(steps, fmt.Sprint(s.Step))
	}
	return strings.Join(steps, ", ")
}
