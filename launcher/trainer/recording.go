package trainer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// recording is the record that a run writes of itself.
type recording struct {
	every    int               // steps between measurements of what quantisation does; 0: there are none
	out      *record.Writer    // on the rank that leads, while it runs
	events   record.EventLog   // the same
	probe    *datasets.Windows // held-out text whose tokens' choices of experts are written down, all of it on the rank that leads; may be nil
	probeSeq int
	lost     bool      // it could not be written
	shown    time.Time // when others could see all of it

	operands map[operand]*quantised // of the step under way
	spent    time.Duration          // on measuring them
}

const (
	// probeTokens is about how many tokens' choices are recorded at an evaluation.
	probeTokens = 512
	// loadEvery is the steps between records of expert loads and phases, if nothing else is said: they cost a line each.
	loadEvery = 20
	// A line of a record has room for the loads, and the biases, of so many experts.
	mostLoads, mostBiases = 1 << 16, 1 << 14
)

func (j *Job) recording() (c *recording, err error) {
	c = &recording{every: j.cfg.RecordEvery, events: record.EventLog{Folder: j.cfg.Out}, operands: map[operand]*quantised{}}
	if c.every > 0 {
		c.probeSeq = min(j.cfg.Seq, probeTokens)
		c.probe, err = datasets.NewWindows(j.heldOut, datasets.WindowsConfig{Seq: c.probeSeq, Count: probeTokens / c.probeSeq, Ranks: 1})
	}
	return c, err
}

// openRecord begins the record, or goes on with that of the run that is resumed.
func (r *rank) openRecord() (err error) {
	if !r.lead() {
		return nil
	}
	if !r.continues {
		text, err := ConfigTOML(r.cfg)
		if err == nil {
			err = system.WriteFile(filepath.Join(r.cfg.Out, "config.toml"), text)
		}
		if err != nil {
			return err
		}
	}
	if r.recording.out, err = record.Open(r.cfg.Out, r.progress.Step); err != nil {
		return err
	}
	if r.progress.Step == r.cfg.Steps {
		return nil // nothing is left to be made here
	}
	r.recording.out.Start(record.Start{
		Step: r.progress.Step, Time: now(), CPU: cpu.Model(), Tier: cpu.Best().String(), Cores: r.job.cores, Version: system.Version(),
		Ranks: r.comm.Size(), Tokens: int64(r.cfg.Batch) * int64(r.cfg.Seq), FLOPs: r.cfg.Model.FLOPsPerToken(r.cfg.Seq), Peak: r.peak,
	})
	return nil
}

// now is the time as records have it, to the millisecond.
func now() float64 { return float64(time.Now().UnixMilli()) / 1e3 }

// show lets others see what was recorded, though not after every step.
func (c *recording) show() error {
	if time.Since(c.shown) < time.Second {
		return nil
	}
	c.shown = time.Now()
	return c.out.Push()
}

// settle takes an error of writing the record. A run that was asked to record what quantisation does ends with it; any other goes on
// without the rest of its record.
func (r *rank) settle(err error) error {
	if err == nil || r.cfg.RecordEvery > 0 {
		return err
	}
	if !r.recording.lost {
		r.recording.lost = true
		r.tell(Alarm{r.progress.Step, fmt.Sprintf("what follows is not written to %s, training goes on: %v", record.File, err)})
	}
	return nil
}

func (r *rank) closeRecord() (err error) {
	err = r.settle(r.recording.out.Close())
	if failed := r.recording.events.Close(); failed != nil {
		r.job.report.Alarm(Alarm{r.progress.Step, failed.Error()})
	}
	return err
}

// push sees to it that what was recorded outlives this process.
func (c *recording) push() error {
	if c.out == nil { // another rank has it
		return nil
	}
	fault.Point(fault.BeforeRecord)
	defer fault.Point(fault.AfterRecord)
	return c.out.Push()
}

// due reports whether a step is one whose expert loads and phases are recorded.
func (c *recording) due(step int) bool { return step == 1 || every(cmp.Or(c.every, loadEvery), step) }

// measures reports whether it is one whose operands are, too.
func (c *recording) measures(step int) bool { return c.every > 0 && c.due(step) }

// recordStep adds a step that took so long, without what the record itself has cost. It is collective.
func (r *rank) recordStep(s Step, took time.Duration) error {
	c, begin := r.recording, time.Now()
	if r.lead() {
		c.out.Step(record.Step{
			Step: s.Step, Loss: record.Number(s.Loss), GradNorm: record.Number(s.GradNorm), LR: s.LR, Imbalance: s.Imbalance,
			Seconds: took.Seconds(), Skipped: s.Skipped, MTP: record.Number(s.MTPLoss), Balance: record.Number(s.Balance), Dropped: int64(s.Dropped), Time: now(),
		})
	}
	if c.due(s.Step) {
		if err := r.recordSums(s.Step); err != nil {
			return fmt.Errorf("recording step %d: %w", s.Step, err)
		}
	}
	r.meter.pause(c.spent + time.Since(begin))
	c.spent = 0
	return nil
}

// recordSums adds the expert loads, which all ranks know the sums of, the operands of a step, and where the time since the last such step
// went.
func (r *rank) recordSums(step int) error {
	keys, sums := r.recording.take()
	const fields = 5
	flat := make([]float64, 0, fields*len(sums))
	for _, s := range sums {
		flat = append(flat, s.elements, s.signal, s.noise, s.saturated, s.flushed)
	}
	if len(flat) > 0 { // on all ranks
		if err := collective.AllReduce(r.comm, flat, collective.Sum); err != nil {
			return err
		}
	}
	lap, err := r.profiler.gatherLap(r.comm)
	if err != nil || !r.lead() {
		return err
	}
	r.recordLoads(step)
	for i, key := range keys {
		f := flat[fields*i:]
		r.recording.out.Quantised(record.Quantised{
			Step: step, Layer: key.layer, Linear: key.linear, Tensor: key.kind.String(), Format: sums[i].format.String(),
			Elements: int64(f[0]), Signal: record.Number(f[1]), Noise: record.Number(f[2]), Saturated: int64(f[3]), Flushed: int64(f[4]),
		})
	}
	if lap.Steps > 0 {
		r.recording.out.Phases(record.Phases{Step: step, Steps: lap.Steps, Seconds: lap.Step.Mean.Seconds(), Families: lap.seconds()})
	}
	return nil
}

// recordLoads adds what the experts of each layer had to do, and the biases that follow from it.
func (r *rank) recordLoads(step int) {
	n := r.cfg.Model.Experts
	if n > mostLoads {
		return
	}
	for i, route := range r.routings {
		load := record.Load{Step: step, Layer: route.Layer, Tokens: r.loads[i*n : (i+1)*n]}
		if biases := route.Bias.F32(); n <= mostBiases && !slices.ContainsFunc(biases, func(b float32) bool { return b-b != 0 }) { // JSON has no NaN
			load.Bias = biases
		}
		r.recording.out.Load(load)
	}
}

// recordEval adds an evaluation, and which experts the probe's tokens choose. It is collective.
func (r *rank) recordEval(e Eval) error {
	c := r.recording
	if r.lead() {
		c.out.Eval(record.Eval{Step: e.Step, Loss: record.Number(e.Loss), Sequences: e.Sequences})
	}
	if c.probe == nil || len(r.routings) == 0 {
		return nil
	}
	batch := moe.Batch{Seq: c.probeSeq, GlobalSequences: c.probe.Len()}
	if r.lead() {
		row := make([]int32, c.probeSeq+1)
		for range c.probe.All(row) {
			batch.Inputs, batch.Targets = append(batch.Inputs, row[:c.probeSeq]...), append(batch.Targets, row[1:]...)
		}
		if r.cfg.DocumentMask {
			batch.First = make([]int32, len(batch.Inputs))
			datasets.DocumentStarts(batch.First, batch.Inputs, c.probeSeq, r.job.separator)
		}
		r.model.Observe(func(name string, t tensor.Tensor) { c.choices(e.Step, name, t) })
		defer r.model.Observe(nil)
	}
	_, err := r.model.Eval(r.ex, batch)
	return err
}

// choices adds an activation of the model to the record if it is a layer's choice of experts: [tokens, top-k] INT32.
func (c *recording) choices(step int, name string, t tensor.Tensor) {
	var layer int
	if n, err := fmt.Sscanf(name, "layer%d_topk_index", &layer); n != 1 || err != nil {
		return
	}
	all := record.Choices{Step: step, Layer: layer, TopK: t.Dim(1)}
	for _, e := range t.I32() {
		all.Experts = binary.LittleEndian.AppendUint16(all.Experts, uint16(e))
	}
	c.out.Choices(all)
}

// recordTimes adds the profile of the run's warm steps, if it has made any.
func (r *rank) recordTimes(p Profile) {
	if p.Steps > 0 {
		r.recording.out.Times(record.Times{Steps: p.Steps, Seconds: p.Step.Mean.Seconds(), Families: p.seconds()})
	}
}

// recordDone ends the record of a run that is not to be continued.
func (r *rank) recordDone(d Done) {
	if d.Interrupted {
		return
	}
	if r.cfg.SampleTokens > 0 {
		r.recording.out.Sample(record.Sample{Step: d.Step, Prompt: d.Prompt, Text: d.Sample})
	}
	r.recording.out.Done(record.Done{Step: d.Step, HeldOut: record.Number(d.HeldOut.Last), Skipped: r.progress.Skipped})
}

// tell reports an alarm, of which the rank that leads hears, and writes it down.
func (r *rank) tell(a Alarm) {
	r.recording.events.Add(spmd.Event{Time: time.Now(), Kind: spmd.Alarm, Rank: -1, Step: int64(a.Step), Reason: a.Text})
	r.job.report.Alarm(a)
}
