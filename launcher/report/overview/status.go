package overview

// What a page says of a run under way: how far it is, when it ends, and its last events.

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/figure"
	"spmoe/launcher/system"
)

// settings are the values of the configuration that the page shows. Those that are missing are
// zero.
type settings struct {
	Flavor, Precision string
	Steps             int
}

func (r Run) settings() (s settings) {
	if toml.Unmarshal([]byte(r.Config), &s) != nil {
		return settings{}
	}
	return s
}

// planned returns the number of steps of the whole run; 0 if unknown.
func (r Run) planned() int { return r.settings().Steps }

// Made returns the number of steps that are made.
func (r Run) Made() int {
	if n := len(r.Log.Steps); n > 0 {
		return r.Log.Steps[n-1].Step
	}
	return 0
}

// status is the progress of a run under way.
type status struct {
	Percent string
	Words   string // "58%, 25s left at this speed"
}

// recentSteps is the number of steps whose mean time predicts the remaining time.
const recentSteps = 20

// Status returns the progress; nil if there is none to show.
func (v view) Status() *status {
	made, planned := v.Made(), v.planned()
	if v.Script == "" || v.Log.Done != nil || made == 0 || planned < made {
		return nil
	}
	s := &status{Percent: fmt.Sprintf("%.1f", 100*float64(made)/float64(planned))}
	s.Words = s.Percent + "%"
	sum, n := 0.0, 0
	for _, step := range v.Log.Steps[max(0, len(v.Log.Steps)-recentSteps):] {
		if step.Seconds > 0 {
			sum, n = sum+step.Seconds, n+1
		}
	}
	const most = 100 * 365 * 24 * time.Hour
	if left := sum / float64(n) * float64(planned-made); n > 0 && left < most.Seconds() {
		s.Words += fmt.Sprintf(", about %s left after step %d, without evaluations and checkpoints", report.Clock(time.Duration(left*float64(time.Second))), made)
	}
	return s
}

// mostLines is the number of steps in the log of a page, and the number of other lines.
const mostLines = 8

// logLine is something that happened, for the log of the page.
type logLine struct {
	time float64 // seconds since 1970; 0: unknown
	step int64
	text string
}

// LastLines returns the last steps of a run under way, and its last evaluations, checkpoints and
// events, the newest last. It is empty for the report of a run.
func (v view) LastLines() string {
	if v.Script == "" {
		return ""
	}
	bySteps := func(a, b logLine) int { return cmp.Compare(a.step, b.step) }
	others := v.otherLines()
	slices.SortStableFunc(others, bySteps)
	var lines []logLine
	for _, s := range v.Log.Steps[max(0, len(v.Log.Steps)-mostLines):] {
		lines = append(lines, logLine{s.Time, int64(s.Step), v.stepText(s)})
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
func (v view) otherLines() (lines []logLine) {
	for _, e := range v.Log.Evals[max(0, len(v.Log.Evals)-mostLines):] {
		lines = append(lines, logLine{0, int64(e.Step), "validation loss " + figure.Loss(float64(e.Loss))})
	}
	for _, c := range v.Checkpoints {
		if c.State() == "complete" {
			lines = append(lines, logLine{float64(c.Time.Unix()), c.Step, "saved " + c.Name})
		}
	}
	for _, e := range v.Events[max(0, len(v.Events)-mostLines):] {
		text := strings.ReplaceAll(string(e.Kind), "_", " ")
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

// stepText returns the measurements of a step.
func (v view) stepText(s record.Step) string {
	text := fmt.Sprintf("loss %s  grad norm %s  lr %s", figure.Loss(float64(s.Loss)), figure.Short(float64(s.GradNorm)), figure.Short(s.LR))
	if figure.Finite(s.TokensPerSec) {
		text += "  " + report.Thousands(s.TokensPerSec) + " tokens/s"
	}
	if s.Skipped {
		text += "  SKIPPED"
	}
	return text
}

// saved is a row of the table of checkpoints.
type saved struct{ Name, Step, Time, Size, State string }

// Saves returns the checkpoints.
func (v view) Saves() (list []saved) {
	for _, c := range v.Checkpoints {
		list = append(list, saved{c.Name, fmt.Sprint(c.Step), c.Time.UTC().Format(time.DateTime), system.Bytes(c.Bytes), c.State()})
	}
	return list
}

// command is a command line with its purpose.
type command struct{ Purpose, Line string }

// Commands returns what to do with the run next.
func (v view) Commands() (list []command) {
	if len(v.Checkpoints) == 0 {
		return nil
	}
	ranks := 1
	if n := len(v.Log.Starts); n > 0 {
		ranks = max(v.Log.Starts[n-1].Ranks, 1)
	}
	run := report.Shell(v.Folder)
	resume := fmt.Sprintf("launcher -np %d train --resume --out %s", ranks, run)
	if v.Log.Done != nil {
		resume += fmt.Sprintf(" --steps %d", 2*v.Made())
	}
	return []command{
		{"train further", resume},
		{"write text", "launcher generate --checkpoint " + run + " --prompt 'func '"},
		{"measure the loss on other text", "launcher eval --checkpoint " + run + " --data FILE"},
		{"export to Hugging Face", "launcher convert --from " + run + " --to " + report.Shell(filepath.Clean(v.Folder)+"-hf")},
	}
}
