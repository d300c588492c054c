package page

// The page of a single run.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
)

func (r Run) page() Page {
	p := Page{Title: r.name(), Badges: []Badge{{r.state() + r.left(), Warn}}, Facts: r.facts(), Sections: newCharts([]Run{r}).sections()}
	if r.Log.Done != nil {
		p.Badges[0].Class = Good
	}
	if n := r.count(spmd.Detected); n > 0 {
		p.Badges = append(p.Badges, Badge{fmt.Sprintf("%d failed and replaced", n), Bad})
	}
	if n := r.count(spmd.Alarm); n > 0 {
		p.Badges = append(p.Badges, Badge{fmt.Sprintf("alarms: %d", n), Warn})
	}
	add := func(title string, blocks []Block) {
		if len(blocks) > 0 {
			p.Sections = append(p.Sections, Section{title, blocks})
		}
	}
	add("Where the time goes", times(r.Log.Times))
	add("Alarms and failures", r.events())
	add("Sample", r.samples())
	add("Setup", r.setup())
	add("Checkpoints", r.saves())
	add("What next", r.commands())
	return p
}

// count returns the number of events of a kind.
func (r Run) count(kind spmd.Kind) (n int) {
	for _, e := range r.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// left says how long a run that is under way will take.
func (r Run) left() string {
	if r.Log.Done != nil || r.made() == 0 || r.settings.Steps <= r.made() {
		return ""
	}
	left := r.Log.Left(r.settings.Steps)
	if left == 0 {
		return ""
	}
	return fmt.Sprintf(", about %s left", report.Clock(left))
}

func (r Run) facts() (list []Fact) {
	log := r.Log
	add := func(name, value, more string) { list = append(list, Fact{name, value, more}) }
	if cfg := r.settings; cfg.Flavor != "" {
		add("model", cfg.Flavor, "in "+cfg.Precision)
	}
	bits := func(nats, scale float64) string {
		if scale == 0 || !report.Finite(nats) {
			return ""
		}
		return report.Fixed(nats*scale, 4) + " bits/byte; "
	}
	if train := r.training(); len(train.Values) > 0 {
		last := train.Trailing(10).Values
		mean := last[len(last)-1]
		add("training loss", report.Loss(mean), bits(mean, train.bits)+"nats/token, mean of the last 10 steps; first "+report.Loss(train.Values[0]))
		steps, tokens := report.Thousands(float64(r.made())), ""
		if r.settings.Steps > r.made() {
			steps += " of " + report.Thousands(float64(r.settings.Steps))
		}
		if per := r.tokensPerStep(); per > 0 {
			tokens = report.Thousands(float64(r.made())*per) + " tokens"
		}
		add("steps", steps, tokens)
	}
	if heldOut := r.heldOut(); len(heldOut.Values) > 0 {
		last, more := log.Evals[len(log.Evals)-1], ""
		if log.Done != nil && log.Done.Gzip > 0 {
			more = fmt.Sprintf("; any bytes: 8 bits/byte, gzip: %s", report.Fixed(float64(log.Done.Gzip), 4))
		}
		add("validation loss", report.Loss(float64(last.Loss)),
			fmt.Sprintf("%safter step %d; first %s%s", bits(float64(last.Loss), heldOut.bits), last.Step, report.Loss(heldOut.Values[0]), more))
	}
	if speeds := Steps(&log, "tps").Finite(); len(speeds) > 0 {
		more := "median step"
		if shares := Steps(&log, "mfu").Finite(); len(shares) > 0 {
			more = report.Percentage(report.Median(shares), 1) + " of the machine’s measured peak (MFU)"
		}
		add("tokens/s", report.Thousands(report.Median(speeds)), more)
	}
	if s := r.start(); s.Ranks > 0 {
		add("ranks", fmt.Sprint(s.Ranks), fmt.Sprintf("%s, %s, %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier))
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

// ByTime returns kinds of work, those that take longest first.
func ByTime(seconds map[string]float64) []string {
	return slices.SortedFunc(
		maps.Keys(seconds),
		func(a, b string) int { return cmp.Or(cmp.Compare(seconds[b], seconds[a]), strings.Compare(a, b)) },
	)
}

// times returns the table of the time of a step by kind of work, the longest first.
func times(t *record.Times) []Block {
	if t == nil || !(t.Seconds > 0) {
		return nil
	}
	kinds := ByTime(t.Families)
	table := Table{Head: Cells("kind of work", "ms", "share", "")}
	for _, kind := range kinds {
		seconds := t.Families[kind]
		bar := Cell{Bar: max(seconds, 0) / max(t.Families[kinds[0]], 1e-12)}
		table.Rows = append(table.Rows, append(Cells(kind, report.Fixed(1e3*seconds, 2), report.Percentage(seconds/t.Seconds, 1)), bar))
	}
	table.Rows = append(table.Rows, Cells("step", report.Fixed(1e3*t.Seconds, 2), "", ""))
	return []Block{
		{Text: "Milliseconds of a warm step by kind of work: mean over steps and ranks. Matrix products are named by format and pass."},
		{Table: &table},
	}
}

// mostEvents is the number of events that a page shows.
const mostEvents = 200

func (r Run) events() (list []Block) {
	if earlier := len(r.Events) - mostEvents; earlier > 0 {
		list = append(list, Block{Note: fmt.Sprintf("%d earlier ones are in %s.", earlier, record.EventsFile)})
	}
	table := Table{Head: Cells("time (UTC)", "event", "rank", "after step", "what")}
	number := func(n int64) string {
		if n < 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for _, e := range r.Events[max(0, len(r.Events)-mostEvents):] {
		reason := e.Reason
		if e.After > 0 && reason == "" {
			reason = fmt.Sprintf("%v after the failure was detected", e.After.Round(100*time.Microsecond))
		}
		row := Cells(e.Time.UTC().Format(time.DateTime), strings.ReplaceAll(string(e.Kind), "_", " "), number(int64(e.Rank)), number(e.Step))
		table.Rows = append(table.Rows, append(row, Cell{Text: reason, Class: Words}))
	}
	if len(table.Rows) == 0 {
		return nil
	}
	return append(list, Block{Table: &table})
}

// mostSamples is the number of samples that a page shows.
const mostSamples = 50

// samples returns the newest sample, and the earlier ones folded.
func (r Run) samples() (list []Block) {
	all := slices.Clone(r.Log.Samples[max(0, len(r.Log.Samples)-mostSamples):])
	slices.Reverse(all)
	for i, s := range all {
		b := Block{Code: s.Prompt + s.Text}
		if title := fmt.Sprintf("after step %d", s.Step); i > 0 {
			b.Summary = title
		} else {
			b.Note = fmt.Sprintf("written by the model %s, after the prompt %q", title, s.Prompt)
		}
		list = append(list, b)
	}
	return list
}

func (r Run) setup() []Block {
	var machines, resumed []string
	for i, s := range r.Log.Starts {
		text := fmt.Sprintf("%s, %s, %s; version %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier, s.Version)
		if s.Ranks > 0 {
			text += "; " + report.Plural(s.Ranks, "rank")
		}
		if s.Peak > 0 {
			text += fmt.Sprintf("; peak %.0f GFLOP/s measured", s.Peak/1e9)
		}
		if !slices.Contains(machines, text) {
			machines = append(machines, text)
		}
		if i > 0 {
			resumed = append(resumed, fmt.Sprint(s.Step))
		}
	}
	terms := []Term{{"machine", Cells(machines...)}, {"resumed after steps", Cells(resumed...)}, {"not shown", Cells(r.Notes...)}}
	terms = slices.DeleteFunc(terms, func(t Term) bool { return len(t.Texts) == 0 })
	list := []Block{{Terms: terms}}
	if r.Config != "" {
		list = append(list, Block{Summary: "configuration", Code: r.Config})
	}
	return list
}

func (r Run) saves() []Block {
	if len(r.Checkpoints) == 0 {
		return nil
	}
	table := Table{Head: Cells("folder", "step", "written (UTC)", "size", "state")}
	for _, c := range r.Checkpoints {
		table.Rows = append(table.Rows, Cells(c.Name, fmt.Sprint(c.Step), c.Time.UTC().Format(time.DateTime), system.Bytes(c.Bytes), c.State()))
	}
	return []Block{{Table: &table}}
}

// commands returns what to do with the run next.
func (r Run) commands() []Block {
	if len(r.Checkpoints) == 0 {
		return nil
	}
	run := report.Shell(r.Folder)
	resume := fmt.Sprintf("launcher -np %d train --resume --out %s", max(r.start().Ranks, 1), run)
	if r.Log.Done != nil {
		resume += fmt.Sprintf(" --steps %d", 2*r.made())
		if r.settings.ScheduleSteps == 0 && r.settings.Steps > 0 {
			resume += fmt.Sprintf(" --schedule-steps %d", r.settings.Steps) // the learning rate stays
		}
	}
	generate, export := report.Commands(r.Folder)
	line := func(purpose, text string) Term { return Term{purpose, []Cell{{Text: text, Class: Mono}}} }
	return []Block{{Terms: []Term{
		line("train further", resume),
		line("write text", generate),
		line("measure the loss on other text", "launcher eval --checkpoint "+run+" --data FILE"),
		line("export to Hugging Face", export),
	}}}
}
