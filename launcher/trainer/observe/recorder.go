package observe

// The record of a run, OUT/metrics.jsonl. The leading rank writes it; sums over ranks are
// collective.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/internal/fault"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// Recorder writes the record.
type Recorder struct {
	Cfg           *config.Config
	Folder        *system.FolderLock      // the run's folder
	Cores         int                     // that all ranks have
	BytesPerToken func() (float64, error) // of the training text

	Comm     *collective.Comm // all ranks
	Peers    *collective.Comm // the ranks with the same stages
	Ex       *tensor.Exec
	State    *state.TrainState
	Alarms   *state.Alarms
	Operands *OperandMeter
	Profiler *Profiler
	Rates    *Meter

	out   *record.Writer // on the leading rank, while it runs
	waits bool           // lines could not be written yet
	ended bool           // lines are lost
	shown time.Time      // when the file was last flushed for readers
}

const (
	// LoadEvery is the default number of steps between records of expert loads and phases. Each
	// takes a line.
	LoadEvery = 20
	// mostLoads is the largest number of experts whose loads fit into a line.
	mostLoads = 1 << 16
)

func (c *Recorder) lead() bool { return c.Comm.Rank() == 0 }

// Open begins the record, or continues that of the resumed run. recalled says that the vaults hold
// its state: then the configuration is already written.
func (c *Recorder) Open(recalled bool) (err error) {
	if !c.lead() {
		return nil
	}
	cfg, step := c.Cfg, c.State.Progress.Step
	if err := c.Folder.Check(); err != nil && recalled {
		c.alarm("what follows is not written to %s, training goes on: %v", record.File, err)
		return nil
	} else if err != nil {
		return err
	}
	if !recalled {
		text, err := config.TOML(*cfg)
		if err == nil {
			err = system.WriteFile(filepath.Join(cfg.Out, "config.toml"), text)
		}
		if err != nil {
			return err
		}
	}
	if c.out, err = record.Open(cfg.Out, step); err != nil {
		return err
	}
	c.out.Held = c.Folder
	if step == cfg.Steps {
		return nil // no steps are left
	}
	layout := cfg.LayoutOrDefault(c.Comm.Size())
	bytes, err := c.BytesPerToken()
	if err != nil {
		return err
	}
	c.out.Start(record.Start{
		Step:          step,
		Time:          now(),
		CPU:           cpu.Model(),
		Tier:          cpu.Best().String(),
		Cores:         c.Cores,
		Version:       system.Version(),
		Ranks:         c.Comm.Size(),
		Mesh:          &layout,
		Tokens:        int64(cfg.Batch) * int64(cfg.Seq),
		BytesPerToken: bytes,
		FLOPs:         cfg.Model.FLOPsPerToken(cfg.Seq),
		Peak:          c.Rates.Peak,
		NewData:       c.State.Progress.DataChange(),
	})
	return nil
}

// Close completes the record.
func (c *Recorder) Close() error { return c.HandleError(c.out.Close()) }

// now returns the time as records store it, to the millisecond.
func now() float64 { return float64(time.Now().UnixMilli()) / 1e3 }

// Show makes the record visible to readers, but not after every step.
func (c *Recorder) Show() error {
	if time.Since(c.shown) < time.Second {
		return nil
	}
	c.shown = time.Now()
	return c.HandleError(c.out.Push())
}

// Push makes the record survive this process.
func (c *Recorder) Push() error {
	if c.out == nil { // another rank has it
		return nil
	}
	fault.Point(fault.BeforeRecord)
	defer fault.Point(fault.AfterRecord)
	return c.HandleError(c.out.Push())
}

// Flush writes the record to the disk.
func (c *Recorder) Flush() error { return c.HandleError(c.out.Flush()) }

// HandleError handles an error of writing the record. The lines wait in memory, and the run goes
// on. When too many lines wait, the record has ended: then a run that was asked to record
// quantization errors ends, too.
func (c *Recorder) HandleError(err error) error {
	ended := errors.Is(err, record.ErrEnded)
	switch {
	case ended && c.Cfg.RecordEvery > 0:
		return err
	case ended && !c.ended:
		c.ended = true
		c.alarm("what follows is not written to %s, training goes on: %v", record.File, err)
	case err == nil && c.waits && !c.ended:
		c.waits = false
		c.alarm("%s is being written again, nothing in it is missing", record.File)
	case err != nil && !c.waits:
		c.waits = true
		c.alarm("%s cannot be written, its lines wait in memory and training goes on: %v", record.File, err)
	}
	return nil
}

func (c *Recorder) alarm(format string, args ...any) {
	c.Alarms.Add(events.Alarm{Step: c.State.Progress.Step, Text: fmt.Sprintf(format, args...)})
}

// recordsSums reports whether the expert loads, operands and phases of a step are recorded. every
// is the number of steps between such records; 0 stands for LoadEvery.
func recordsSums(every, step int) bool {
	return step == 1 || config.Due(cmp.Or(every, LoadEvery), step)
}

// after adds a step. The time of recording is excluded from the run's rates, and so is what other
// observers spent inside the step.
func (c *Recorder) after(s events.Step, took, spent time.Duration) error {
	begin := time.Now()
	if c.lead() {
		line := s
		line.Seconds, line.Time, line.Memory = took.Seconds(), now(), system.Resident()
		c.out.Step(line)
	}
	if recordsSums(c.Cfg.RecordEvery, s.Step) {
		if err := c.sums(s.Step); err != nil {
			return fmt.Errorf("recording step %d: %w", s.Step, err)
		}
	}
	c.Rates.Pause(spent + time.Since(begin))
	return nil
}

// sums adds the expert loads, which are summed already, the operands of a step, and the profile
// since the last such step. It is collective.
func (c *Recorder) sums(step int) error {
	operands, err := c.quantized(step)
	if err == nil && c.State.Pipe != nil {
		operands, err = c.gatherOperands(operands)
	}
	if err != nil {
		return err
	}
	lap, err := c.Profiler.gatherLap(c.Comm)
	if err != nil || !c.lead() {
		return err
	}
	if b := c.State.Balancer; b.Experts <= mostLoads {
		for _, layer := range b.Layers {
			c.out.Load(record.Load{Step: step, Layer: layer, Tokens: b.Load(layer)})
		}
	}
	for _, line := range operands {
		c.out.Quantized(line)
	}
	if lap.Steps > 0 {
		c.out.Phases(record.Phases{
			Step:     step,
			Steps:    lap.Steps,
			Seconds:  lap.Step.Mean.Seconds(),
			Families: lap.Seconds(),
		})
	}
	return nil
}

// gatherOperands returns the lines of all stages by layer. It is collective.
func (c *Recorder) gatherOperands(mine []record.Quantized) (all []record.Quantized, err error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := state.GatherTexts(c.Comm, string(text))
	for _, text := range texts {
		var lines []record.Quantized
		if err := json.Unmarshal([]byte(text), &lines); err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	slices.SortStableFunc(all, func(a, b record.Quantized) int { return cmp.Compare(a.Layer, b.Layer) })
	return all, err
}

// quantized returns the lines of the operands of a step in this rank's stages. Of the ranks with
// the same stages, the first has them.
func (c *Recorder) quantized(step int) (lines []record.Quantized, err error) {
	keys, sums := c.Operands.take()
	const fields = 5
	flat := make([]float64, 0, fields*len(sums))
	for _, s := range sums {
		flat = append(flat, s.Elements, s.Signal, s.Noise, s.Saturated, s.Flushed)
	}
	if len(flat) > 0 { // on all peers
		if err := collective.AllReduce(c.Peers, flat, collective.Sum); err != nil {
			return nil, err
		}
	}
	if !c.State.First {
		return nil, nil
	}
	for i, key := range keys {
		f := flat[fields*i:]
		lines = append(lines, record.Quantized{
			Step:      step,
			Layer:     key.layer,
			Linear:    key.linear,
			Tensor:    key.kind.String(),
			Format:    sums[i].format.String(),
			Elements:  int64(f[0]),
			Signal:    record.Number(f[1]),
			Noise:     record.Number(f[2]),
			Saturated: int64(f[3]),
			Flushed:   int64(f[4]),
		})
	}
	return lines, nil
}

// times adds the profile of the run's warm steps, if there are any.
func (c *Recorder) times(p events.Profile) {
	if p.Steps > 0 {
		c.out.Times(record.Times{
			Step:     c.State.Progress.Step,
			Steps:    p.Steps,
			Seconds:  p.Step.Mean.Seconds(),
			Families: p.Seconds(),
		})
	}
}

// Evaluation adds an evaluation.
func (c *Recorder) Evaluation(e events.Eval) {
	if c.lead() {
		c.out.Eval(record.Eval{
			Step:        e.Step,
			Loss:        record.Number(e.Loss),
			BitsPerByte: record.Number(e.BitsPerByte),
			Sequences:   e.Sequences,
		})
	}
}

// Sample adds text that the model wrote.
func (c *Recorder) Sample(s record.Sample) { c.out.Sample(s) }

// Done ends the record of a run that is complete.
func (c *Recorder) Done(d events.Done) {
	if d.Interrupted {
		return
	}
	if c.Cfg.SampleTokens > 0 {
		c.Sample(record.Sample{Step: d.Step, Prompt: d.Prompt, Text: d.Sample})
	}
	end := record.Done{
		Step:    d.Step,
		HeldOut: record.Number(d.HeldOut.Last),
		Skipped: c.State.Progress.Skipped,
	}
	for _, loss := range d.PassLosses {
		end.Passes = append(end.Passes, record.Number(loss))
	}
	c.out.Done(end)
}
