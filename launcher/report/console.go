// Package report prints the events of a run: lines for people or JSON lines for programs.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/events"
)

// Console prints a run for people, one line per event.
type Console struct{ W io.Writer }

func (c Console) printf(format string, args ...any) { fmt.Fprintf(c.W, format, args...) }

// Start prints the model, the machine and the data of a run.
func (c Console) Start(s events.Start) {
	cfg := s.Config
	c.printf("spmoe: %s, %s parameters (%s active), %s, %s\n",
		cfg.Flavor, Count(s.Counts.Total), Count(s.Counts.Active), cfg.Precision, Plural(s.Ranks, "rank"))
	c.printf("machine: %s, %s, %s, peak %.0f GFLOP/s measured\n", s.CPU, Plural(s.Cores, "core"), s.Tier, s.Peak/1e9)
	if s.Corpus.Builtin != "" {
		c.printf("text: %s\n", s.Corpus.Builtin)
	}
	c.printf("data: %s for training, %s for validation, %s\n",
		system.Bytes(s.Corpus.TrainBytes), system.Bytes(s.Corpus.HeldOutBytes), Plural(s.Corpus.Documents, "document"))
	if l := s.Corpus.Losses; l.NUL+l.Replaced+l.Other > 0 || l.Skipped > 0 && s.Corpus.Builtin == "" {
		others := ""
		if l.Other > 0 {
			others = fmt.Sprintf("; %s without rows in folders with rows", Plural(l.Other, "file"))
		}
		c.printf("left out: %d rows and files without text; the NUL bytes of %s; invalid characters of %s, for which U+FFFD stands%s\n",
			l.Skipped, Plural(l.NUL, "document"), Plural(l.Replaced, "document"), others)
	}
	if s.Tokenizer != "" {
		c.printf("tokenizer: %s\n", Printable(s.Tokenizer))
	}
	c.printf("run: %s of %s of %d tokens, %.3g FLOPs per token, in %s\n",
		Plural(cfg.Steps, "step"), Plural(cfg.Batch, "sequence"), cfg.Seq, s.FLOPs, cfg.Out)
	if s.Resumed != "" {
		c.printf("resuming %s at step %d\n", s.Resumed, s.From)
	}
	for _, note := range s.Notes {
		c.printf("NOTE: %s\n", Printable(note))
	}
}

// Step prints one log line in TorchTitan's form.
func (c Console) Step(s events.Step) {
	fields := []string{fmt.Sprintf("step: %*d", len(strconv.Itoa(s.Steps)), s.Step)}
	for _, q := range logged {
		if x, ok := q.In(&s); ok && q.Console != "" {
			fields = append(fields, q.Console+": "+shown(q.Format, x, s))
		}
	}
	if s.Skipped {
		fields = append(fields, fmt.Sprintf("SKIPPED: its gradients are unusable, weights unchanged (%s so far)", Plural(s.SkippedTotal, "step")))
	}
	c.printf("%s\n", strings.Join(fields, "  "))
}

// logged are the quantities in the order of a log line.
var logged = slices.SortedStableFunc(slices.Values(record.Quantities), func(a, b record.Quantity) int { return cmp.Compare(a.Place, b.Place) })

// shown formats a quantity of a step.
func shown(format record.Format, x float64, s events.Step) string {
	switch format {
	case record.Thousands:
		return Thousands(x)
	case record.Percent:
		return fmt.Sprintf("%.1f%%", 100*x)
	case record.Memory:
		return fmt.Sprintf("%s(%.1f%%)", system.Bytes(int64(x)), 100*s.MemoryShare)
	case record.Clock:
		return Clock(time.Duration(x * float64(time.Second)))
	}
	return fmt.Sprintf(string(format), x)
}

// Eval prints a validation loss.
func (c Console) Eval(e events.Eval) {
	c.printf("validation after step %d: loss %.4f nats, %.4f bits/byte (%s)\n", e.Step, e.Loss, e.BitsPerByte, Plural(e.Sequences, "sequence"))
}

// Sample prints text that the model wrote.
func (c Console) Sample(s events.Sample) {
	c.printf("sample after step %d, after %q:\n%s\n", s.Step, s.Prompt, indent(Printable(s.Text)))
}

// Saved prints the path of a checkpoint and the time that saving took.
func (c Console) Saved(s events.Saved) {
	c.printf("saved %s in %s, training paused for %s\n", s.Path, s.Lag.Round(time.Millisecond), s.Stall.Round(time.Millisecond))
}

// Alarm prints a problem that the run survived.
func (c Console) Alarm(a events.Alarm) {
	c.printf("ALARM: %s\n", Printable(a.Text))
}

// Stopping prints when a run that was asked to stop will do so.
func (c Console) Stopping(s events.Stopping) { c.printf("%s\n", s) }

// Done prints the run's summary.
func (c Console) Done(d events.Done) {
	if d.Interrupted {
		c.printf("interrupted after step %d of %d; to continue: launcher -np %d train --resume --out %s\n", d.Step, d.Steps, d.Ranks, Shell(d.Out))
		return
	}
	c.printf("\ndone: %s in %s\n", Plural(d.Step, "step"), Clock(d.Elapsed))
	mean := ""
	if d.Mean > 1 {
		mean = fmt.Sprintf(" (mean of the last %d steps)", d.Mean)
	}
	c.progress("training", d.Train, mean)
	c.progress("validation", d.HeldOut, "")
	if d.Sample != "" {
		c.printf("sample, after %q:\n%s\n", d.Prompt, indent(Printable(d.Sample)))
	}
}

func (c Console) progress(name string, p events.LossChange, about string) {
	first, last := p.BitsPerByte()
	c.printf("  %s: loss %.4f -> %.4f nats, %.4f -> %.4f bits/byte%s\n", name, p.First, p.Last, first, last, about)
}

// Count formats a number of parameters: 15.71 B.
func Count(n int64) string {
	switch v := float64(n); {
	case v >= 1e9:
		return fmt.Sprintf("%.4g B", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.4g M", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.4g K", v/1e3)
	}
	return strconv.FormatInt(n, 10)
}

// Plural formats a count with its noun: 1 step, 2 steps.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Thousands formats a rate with commas: 12,345.
func Thousands(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Clock formats a duration to the second: 1h02m03s, 4m05s, 6s.
func Clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	switch {
	case s >= 3600:
		return fmt.Sprintf("%dh%02dm%02ds", s/3600, s/60%60, s%60)
	case s >= 60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%ds", s)
}

// Printable replaces characters that could upset a terminal, since the model may emit any byte.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || strconv.IsPrint(r) {
			return r
		}
		return '\u00b7'
	}, strings.ToValidUTF8(text, "\u00b7"))
}

// Shell quotes a path for a shell command if necessary.
func Shell(path string) string {
	safe := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("/._-+=:,@%", r)
	}
	if path != "" && !strings.ContainsFunc(path, func(r rune) bool { return !safe(r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func indent(text string) string { return "  | " + strings.ReplaceAll(text, "\n", "\n  | ") }
