package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
)

// JSON prints a run as JSON lines. The field "event" names the kind of a line. NaN and infinities,
// which JSON lacks, are null.
type JSON struct{ W io.Writer }

type fields map[string]any

func (j JSON) print(event string, f fields) {
	f["event"] = event
	for k, v := range f {
		if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
			f[k] = nil
		}
	}
	line, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("report: %s: %v", event, err))
	}
	fmt.Fprintf(j.W, "%s\n", line)
}

// Start prints the description of the run.
func (j JSON) Start(s events.Start) {
	f := fields{
		"flavor":            s.Config.Flavor,
		"precision":         s.Config.Precision,
		"np":                s.Ranks,
		"mesh":              s.Mesh,
		"steps":             s.Config.Steps,
		"batch":             s.Config.Batch,
		"seq":               s.Config.Seq,
		"parameters":        s.Counts.Total,
		"active_parameters": s.Counts.Active,
		"flops_per_token":   s.FLOPs,
		"peak_flops":        s.Peak,
		"cpu":               s.CPU,
		"tier":              s.Tier,
		"cores":             s.Cores,
		"train_bytes":       s.Corpus.TrainBytes,
		"held_out_bytes":    s.Corpus.HeldOutBytes,
		"documents":         s.Corpus.Documents,
		"from_step":         s.From,
		"resumed":           s.Resumed,
		"out":               s.Config.Out,
	}
	if len(s.Notes) > 0 {
		f["notes"] = s.Notes
	}
	if s.Tokenizer != "" {
		f["tokenizer"], f["losses"] = s.Tokenizer, s.Corpus.Losses
	}
	if s.Corpus.Builtin != "" {
		f["text"] = s.Corpus.Builtin
	}
	j.print("start", f)
}

// Step prints one optimizer step.
func (j JSON) Step(s events.Step) {
	f := fields{"steps": s.Steps, "skipped": s.Skipped}
	for _, q := range record.Quantities {
		if x, ok := q.In(&s); ok && q.JSON != "" {
			f[q.JSON] = x
		}
	}
	j.print("step", f)
}

// Eval prints a validation loss.
func (j JSON) Eval(e events.Eval) {
	j.print("eval", fields{
		"step":                   e.Step,
		"held_out_loss":          e.Loss,
		"held_out_bits_per_byte": e.BitsPerByte,
		"sequences":              e.Sequences,
	})
}

// Sample prints text that the model wrote.
func (j JSON) Sample(s events.Sample) {
	j.print("sample", fields{"step": s.Step, "prompt": s.Prompt, "text": s.Text})
}

// Saved prints the path of a checkpoint.
func (j JSON) Saved(s events.Saved) {
	j.print("saved", fields{
		"step":    s.Step,
		"path":    s.Path,
		"stall_s": s.Stall.Seconds(),
		"lag_s":   s.Lag.Seconds(),
	})
}

// Alarm prints a problem that the run survived.
func (j JSON) Alarm(a events.Alarm) { j.print("alarm", fields{"step": a.Step, "text": a.Text}) }

// Stopping prints when a run that was asked to stop will do so.
func (j JSON) Stopping(s events.Stopping) {
	j.print("stopping", fields{"step": s.Step, "text": s.String()})
}

// Done prints the run's summary.
func (j JSON) Done(d events.Done) {
	f := fields{
		"step":        d.Step,
		"steps":       d.Steps,
		"np":          d.Ranks,
		"interrupted": d.Interrupted,
		"elapsed_s":   d.Elapsed.Seconds(),
		"out":         d.Out,
	}
	if !d.Interrupted {
		f["first_loss"], f["last_loss"] = d.Train.First, d.Train.Last
		f["first_held_out_loss"], f["last_held_out_loss"] = d.HeldOut.First, d.HeldOut.Last
		f["first_held_out_bits_per_byte"], f["last_held_out_bits_per_byte"] = d.HeldOut.BitsPerByte()
		f["sample"] = d.Sample
	}
	j.print("done", f)
}
