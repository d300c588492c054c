package trainer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
	"spmoe/tensor/profile"
)

// recording is the record that a run writes of itself. A nil recording is none.
type recording struct {
	every    int
	out      *record.Writer    // on the rank that leads, while it runs
	probe    *datasets.Windows // held-out text whose tokens' choices of experts are written down, all of it on the rank that leads
	probeSeq int

	operands map[operand]*quantised // of the step under way
	spent    time.Duration          // on measuring them
}

// operand tells the operands of a step apart.
type operand struct {
	layer  int
	linear string
	kind   moe.Operand
}

// quantised is an operand's part on this rank.
type quantised struct {
	format mx.Format
	quantisation
}

// probeTokens is about how many tokens' choices are recorded at an evaluation.
const probeTokens = 512

func (j *Job) recording() (*recording, error) {
	if j.cfg.RecordEvery == 0 {
		return nil, nil
	}
	seq := min(j.cfg.Seq, probeTokens)
	probe, err := datasets.NewWindows(j.heldOut, datasets.WindowsConfig{Seq: seq, Count: probeTokens / seq, Ranks: 1})
	return &recording{every: j.cfg.RecordEvery, probe: probe, probeSeq: seq, operands: map[operand]*quantised{}}, err
}

// open begins the record, or goes on with that of the run that is resumed.
func (r *rank) openRecord() (err error) {
	if r.recording == nil || !r.lead() {
		return nil
	}
	if r.recording.out, err = record.Open(r.cfg.Out, r.progress.Step); err != nil {
		return err
	}
	if r.progress.Step == r.cfg.Steps {
		return nil // nothing is left to be made here
	}
	r.recording.out.Start(record.Start{
		Step: r.progress.Step, CPU: cpu.Model(), Tier: cpu.Best().String(), Cores: r.job.cores, Version: system.Version(),
	})
	return nil
}

func (c *recording) close() error {
	if c == nil || c.out == nil {
		return nil
	}
	return c.out.Close()
}

// flush writes the record to disk, so that no checkpoint is ahead of it.
func (c *recording) flush() error {
	if c == nil || c.out == nil {
		return nil
	}
	return c.out.Flush()
}

// push sees to it that what was recorded outlives this process.
func (c *recording) push() error {
	if c == nil || c.out == nil {
		return nil
	}
	fault.Point(fault.BeforeRecord)
	defer fault.Point(fault.AfterRecord)
	return c.out.Push()
}

// due reports whether a step is one whose expert loads and operands are recorded.
func (c *recording) due(step int) bool { return c != nil && (step == 1 || every(c.every, step)) }

// cost is the time that the operands of the step under way have taken to measure.
func (c *recording) cost() time.Duration {
	if c == nil {
		return 0
	}
	return c.spent
}

// discard forgets the operands of the step under way, which is computed again.
func (c *recording) discard() {
	if c != nil {
		clear(c.operands)
	}
}

// watch makes the model show what it quantises, if that is to be disturbed or recorded.
func (r *rank) watch(recorded bool) {
	disturb := r.job.Disturb
	if disturb == nil && !recorded {
		r.model.ObserveQuantised(nil)
		return
	}
	r.model.ObserveQuantised(func(q moe.Quantised) {
		if disturb != nil && !q.Sent {
			disturb(q)
		}
		if recorded {
			r.recordOperand(q)
		}
	})
}

// recordOperand adds an operand to the sums of the step. What all ranks have is counted once, and what was sent is counted by its sender.
func (r *rank) recordOperand(q moe.Quantised) {
	defer r.ex.Enter(r.ex.Enter(profile.Rest)) // where the profile takes it out
	begin := time.Now()
	c, key := r.recording, operand{q.Layer, q.Linear, q.Operand}
	if c.operands[key] == nil {
		c.operands[key] = &quantised{format: q.Format}
	}
	if !q.Received && (q.Local || r.lead()) {
		c.operands[key].add(measure(r.ex, q))
	}
	c.spent += time.Since(begin)
}

// recordStep adds a step that took so long, without what the record itself has cost. It is collective.
func (r *rank) recordStep(s Step, took time.Duration) error {
	c := r.recording
	if c == nil {
		return nil
	}
	begin := time.Now()
	if r.lead() {
		c.out.Step(record.Step{
			Step: s.Step, Loss: record.Number(s.Loss), GradNorm: record.Number(s.GradNorm), LR: s.LR, Imbalance: s.Imbalance,
			Seconds: took.Seconds(), Skipped: s.Skipped,
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

// recordSums adds the expert loads, which all ranks know the sums of, and the operands of a step.
func (r *rank) recordSums(step int) error {
	keys, sums := r.recording.take()
	const fields = 5
	flat := make([]float64, 0, fields*len(sums))
	for _, s := range sums {
		flat = append(flat, s.elements, s.signal, s.noise, s.saturated, s.flushed)
	}
	if err := collective.AllReduce(r.comm, flat, collective.Sum); err != nil || !r.lead() {
		return err
	}
	n := r.cfg.Model.Experts
	for i, route := range r.routings {
		r.recording.out.Load(record.Load{Step: step, Layer: route.Layer, Tokens: r.loads[i*n : (i+1)*n]})
	}
	for i, key := range keys {
		f := flat[fields*i:]
		r.recording.out.Quantised(record.Quantised{
			Step: step, Layer: key.layer, Linear: key.linear, Tensor: key.kind.String(), Format: sums[i].format.String(),
			Elements: int64(f[0]), Signal: record.Number(f[1]), Noise: record.Number(f[2]), Saturated: int64(f[3]), Flushed: int64(f[4]),
		})
	}
	return nil
}

// take returns the operands of the step, in the order of the record, which is that of all ranks, and forgets them.
func (c *recording) take() (keys []operand, sums []quantised) {
	for key := range c.operands {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b operand) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), strings.Compare(a.linear, b.linear), cmp.Compare(a.kind, b.kind))
	})
	for _, key := range keys {
		sums = append(sums, *c.operands[key])
	}
	clear(c.operands)
	return keys, sums
}

// recordEval adds an evaluation, and which experts the probe's tokens choose. It is collective.
func (r *rank) recordEval(e Eval) error {
	c := r.recording
	if c == nil {
		return nil
	}
	if r.lead() {
		c.out.Eval(record.Eval{Step: e.Step, Loss: record.Number(e.Loss), Sequences: e.Sequences})
	}
	if len(r.routings) == 0 {
		return nil
	}
	batch := moe.Batch{Seq: c.probeSeq, GlobalSequences: c.probe.Len()}
	if r.lead() {
		row := make([]int32, c.probeSeq+1)
		for range c.probe.All(row) {
			batch.Inputs, batch.Targets = append(batch.Inputs, row[:c.probeSeq]...), append(batch.Targets, row[1:]...)
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
	if r.recording == nil || p.Steps == 0 {
		return
	}
	t := record.Times{Steps: p.Steps, Seconds: p.Step.Mean.Seconds(), Families: map[string]float64{}}
	for _, f := range p.Families {
		t.Families[f.Name] = f.Mean.Seconds()
	}
	r.recording.out.Times(t)
}

// recordDone ends the record of a run that is not to be continued.
func (r *rank) recordDone(d Done) {
	if r.recording != nil && !d.Interrupted {
		r.recording.out.Done(record.Done{Step: d.Step, HeldOut: record.Number(d.HeldOut.Last), Skipped: r.progress.Skipped})
	}
}
