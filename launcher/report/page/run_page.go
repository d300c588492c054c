package page

// The page of a run.

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

// Page returns the page of a run. A live one follows the run.
func (r Run) Page(live bool) Page {
	p := Page{Title: r.name(), Badges: []Badge{{r.state(), Warn}}, Facts: r.facts(), Live: live, Tokens: r.tokens()}
	if r.Log.Done != nil {
		p.Badges[0].Class = Good
	}
	if n := r.count(spmd.Detected); n > 0 {
		p.Badges = append(p.Badges, Badge{fmt.Sprintf("%d failed and replaced", n), Bad})
	}
	if n := r.count(spmd.Alarm); n > 0 {
		p.Badges = append(p.Badges, Badge{fmt.Sprintf("alarms: %d", n), Warn})
	}
	add := func(title string, blocks ...Block) {
		if len(blocks) > 0 {
			p.Sections = append(p.Sections, Section{title, blocks})
		}
	}
	if live && r.Log.Done == nil {
		p.Progress = r.progress()
		if lines := r.lastLines(); lines != "" {
			add("Latest", Block{Code: lines}, Block{Note: "Times are UTC."})
		}
	}
	for _, title := range []string{"Loss", "Speed", experts} {
		if charts := r.charts(title); len(charts) > 0 {
			add(title, Block{Charts: charts})
		}
	}
	add("Where the time goes", times(r.Log.Times)...)
	add("Alarms and failures", r.events()...)
	add("Sample", r.samples()...)
	add("Setup", r.setup()...)
	add("Checkpoints", r.saves()...)
	add("What next", r.commands()...)
	return p
}

// state says how far the run is.
func (r Run) state() string {
	switch {
	case r.Log.Done != nil:
		return "done"
	case r.made() == 0:
		return "no step yet"
	case r.settings.Steps > 0:
		return fmt.Sprintf("step %d of %d", r.made(), r.settings.Steps)
	}
	return fmt.Sprintf("%s made", report.Plural(r.made(), "step"))
}

func (r Run) facts() (list []Fact) {
	log := r.Log
	add := func(name, value, more string) { list = append(list, Fact{name, value, more}) }
	if cfg := r.settings; cfg.Flavor != "" {
		add("model", cfg.Flavor, "in "+cfg.Precision)
	}
	train, heldOut := r.bitsPerNat()
	bits := func(loss, scale float64) string {
		if scale == 0 || !report.Finite(loss) {
			return ""
		}
		return report.Fixed(loss*scale, 4) + " bits/byte; "
	}
	if n := len(log.Steps); n > 0 {
		first, last := log.Steps[0], log.Steps[n-1]
		loss := Steps(&record.Log{Steps: log.Steps[max(0, n-10):]}, "loss").Trailing(10).Values[0]
		add(
			"training loss",
			report.Loss(loss),
			bits(loss, train)+"nats/token, mean of the last 10 steps; first "+report.Loss(float64(first.Loss)),
		)
		steps, tokens := report.Thousands(float64(last.Step)), ""
		if r.settings.Steps > last.Step {
			steps += " of " + report.Thousands(float64(r.settings.Steps))
		}
		if r.tokensPerStep() > 0 {
			tokens = report.Thousands(float64(last.Step)*r.tokensPerStep()) + " tokens"
		}
		add("steps", steps, tokens)
	}
	if n := len(log.Evals); n > 0 {
		last := log.Evals[n-1]
		more := fmt.Sprintf("after step %d; first %s", last.Step, report.Loss(float64(log.Evals[0].Loss)))
		if log.Done != nil && log.Done.Gzip > 0 {
			more += fmt.Sprintf("; any bytes: 8 bits/byte, gzip: %s", report.Fixed(float64(log.Done.Gzip), 4))
		}
		add("validation loss", report.Loss(float64(last.Loss)), bits(float64(last.Loss), heldOut)+more)
	}
	if speeds := r.speeds().Finite(); len(speeds) > 0 {
		more := "median step"
		if shares := r.utilization().Finite(); len(shares) > 0 {
			more = report.Percentage(report.Median(shares)/100, 1) + " of the machine’s measured peak (MFU)"
		}
		add("tokens/s", report.Thousands(report.Median(speeds)), more)
	}
	if n := len(log.Starts); n > 0 {
		s := log.Starts[n-1]
		add("ranks", fmt.Sprint(s.Ranks), fmt.Sprintf("%s, %s, %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier))
	}
	if p := r.Projection; p != nil {
		add(
			"projected",
			report.Thousands(p.Budget.Tokens),
			fmt.Sprintf("tokens/s per GPU of %s on %d %s with this run’s routing; 80 %% interval %s to %s",
				p.Budget.Run.Model, p.Budget.Run.GPUs, p.Budget.Run.GPU, report.Thousands(p.Budget.Low), report.Thousands(p.Budget.High)),
		)
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

// recentSteps is the number of steps whose mean time predicts the remaining time.
const recentSteps = 20

// progress returns how far a run under way is; nil if there is nothing to show.
func (r Run) progress() *Progress {
	made, planned := r.made(), r.settings.Steps
	if made == 0 || planned < made {
		return nil
	}
	p := Progress{Share: float64(made) / float64(planned)}
	p.Text = fmt.Sprintf("%.1f%%", 100*p.Share)
	sum, n := 0.0, 0
	for _, step := range r.Log.Steps[max(0, len(r.Log.Steps)-recentSteps):] {
		if step.Seconds > 0 {
			sum, n = sum+step.Seconds, n+1
		}
	}
	const most = 100 * 365 * 24 * time.Hour
	if left := sum / float64(n) * float64(planned-made); n > 0 && left < most.Seconds() {
		clock := report.Clock(time.Duration(left * float64(time.Second)))
		p.Text += fmt.Sprintf(", about %s left after step %d, without evaluations and checkpoints", clock, made)
	}
	return &p
}

// mostLines is the number of steps in the log of a live page, and the number of other lines.
const mostLines = 8

// logLine is something that happened.
type logLine struct {
	time float64 // seconds since 1970; 0: unknown
	step int64
	text string
}

// lastLines returns the last steps of a run, and its last evaluations, checkpoints and events, the
// newest last.
func (r Run) lastLines() string {
	bySteps := func(a, b logLine) int { return cmp.Compare(a.step, b.step) }
	others := r.otherLines()
	slices.SortStableFunc(others, bySteps)
	var lines []logLine
	for _, s := range r.Log.Steps[max(0, len(r.Log.Steps)-mostLines):] {
		text := fmt.Sprintf("loss %s  grad norm %.4g  lr %.4g", report.Loss(float64(s.Loss)), float64(s.GradNorm), s.LR)
		if report.Finite(s.TokensPerSec) {
			text += "  " + report.Thousands(s.TokensPerSec) + " tokens/s"
		}
		if s.Skipped {
			text += "  SKIPPED"
		}
		lines = append(lines, logLine{s.Time, int64(s.Step), text})
	}
	lines = append(lines, others[max(0, len(others)-mostLines):]...)
	slices.SortStableFunc(lines, bySteps)
	var text strings.Builder
	for _, l := range lines {
		clock := strings.Repeat(" ", len(time.TimeOnly))
		if l.time > 0 {
			clock = time.UnixMilli(int64(l.time * 1e3)).UTC().Format(time.TimeOnly)
		}
		fmt.Fprintf(&text, "%s  step %-6d %s\n", clock, l.step, l.text)
	}
	return text.String()
}

// otherLines returns evaluations, checkpoints and events.
func (r Run) otherLines() (lines []logLine) {
	for _, e := range r.Log.Evals[max(0, len(r.Log.Evals)-mostLines):] {
		lines = append(lines, logLine{0, int64(e.Step), "validation loss " + report.Loss(float64(e.Loss))})
	}
	for _, c := range r.Checkpoints {
		if c.State() == "complete" {
			lines = append(lines, logLine{float64(c.Time.Unix()), c.Step, "saved " + c.Name})
		}
	}
	for _, e := range r.Events[max(0, len(r.Events)-mostLines):] {
		text := words(e.Kind)
		if e.Rank >= 0 {
			text += fmt.Sprintf(", rank %d", e.Rank)
		}
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		lines = append(lines, logLine{float64(e.Time.UnixMilli()) / 1e3, e.Step, text})
	}
	return lines
}

func words(kind spmd.Kind) string { return strings.ReplaceAll(string(kind), "_", " ") }

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
		row := Cells(e.Time.UTC().Format(time.DateTime), words(e.Kind), number(int64(e.Rank)), number(e.Step))
		table.Rows = append(table.Rows, append(row, Cell{Text: reason, Class: Words}))
	}
	if len(table.Rows) == 0 {
		return nil
	}
	return append(list, Block{Table: &table})
}

// mostSamples is the number of earlier samples that a page shows.
const mostSamples = 50

func (r Run) samples() (list []Block) {
	all := r.Log.Samples[max(0, len(r.Log.Samples)-mostSamples-1):]
	for i := len(all) - 1; i >= 0; i-- {
		s := all[i]
		b := Block{Note: "written by the model; the prompt is in bold", Sample: []string{s.Prompt, s.Text}}
		if b.Summary = fmt.Sprintf("after step %d", s.Step); i == len(all)-1 {
			b.Summary, b.Note = "", fmt.Sprintf("written by the model after step %d; the prompt is in bold", s.Step)
		}
		list = append(list, b)
	}
	return list
}

func (r Run) setup() []Block {
	var machines, files []Cell
	var resumed []string
	for i, s := range r.Log.Starts {
		text := fmt.Sprintf("%s, %s, %s; version %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier, s.Version)
		if s.Ranks > 0 {
			text += "; " + report.Plural(s.Ranks, "rank")
		}
		if s.Peak > 0 {
			text += fmt.Sprintf("; peak %.0f GFLOP/s measured", s.Peak/1e9)
		}
		if !slices.Contains(machines, Cell{Text: text}) {
			machines = append(machines, Cell{Text: text})
		}
		if i > 0 {
			resumed = append(resumed, fmt.Sprint(s.Step))
		}
	}
	for _, name := range r.Files {
		files = append(files, r.file(name, name))
	}
	terms := []Term{{"machine", machines}, {"resumed after steps", Cells(resumed...)}, {"files", files}, {"not shown", Cells(r.Notes...)}}
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
		row := Cells(c.Name, fmt.Sprint(c.Step), c.Time.UTC().Format(time.DateTime), system.Bytes(c.Bytes), c.State())
		row[0] = r.file(c.Name, c.Name+"/")
		table.Rows = append(table.Rows, row)
	}
	return []Block{{Table: &table}}
}

// commands returns what to do with the run next.
func (r Run) commands() []Block {
	if len(r.Checkpoints) == 0 {
		return nil
	}
	ranks := 1
	if n := len(r.Log.Starts); n > 0 {
		ranks = max(r.Log.Starts[n-1].Ranks, 1)
	}
	run := report.Shell(r.Folder)
	resume := fmt.Sprintf("launcher -np %d train --resume --out %s", ranks, run)
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
