package observe

// The record of expert choices: those of the same tokens of the validation text, the probe, at each
// evaluation.

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/launcher/tasks"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/tensor"
)

// RecordedTasks returns results as a record has them.
func RecordedTasks(results []tasks.Result) (all []record.Task) {
	for _, r := range results {
		t := record.Task{Task: r.Task, Form: r.Form, Items: r.Items, Metrics: map[string]record.Number{}}
		for _, m := range r.Metrics {
			t.Metrics[m.Name] = record.Number(m.Value)
		}
		all = append(all, t)
	}
	return all
}

// Probe is validation text for which the expert choices of each token are recorded. Of the ranks
// with the same stages, the first reads it.
type Probe struct {
	windows *datasets.Windows
	seq     int

	separator int32 // the id that ends a document; set with document_mask
}

// probeTokens is the approximate number of tokens of the probe.
const probeTokens = 512

// NewProbe returns the probe of a run with a validation text; nil if its record has none.
func NewProbe(cfg *config.Config, heldOut datasets.Stream, separator int32) (*Probe, error) {
	if cfg.RecordEvery == 0 {
		return nil, nil
	}
	seq := min(cfg.Seq, probeTokens)
	windows, err := datasets.NewWindows(heldOut, datasets.WindowsConfig{Seq: seq, Count: probeTokens / seq, Ranks: 1})
	return &Probe{windows, seq, separator}, err
}

// Evaluation adds an evaluation and the expert choices of the probe's tokens. It is collective.
func (c *Recorder) Evaluation(e events.Eval) error {
	if c.lead() {
		c.out.Eval(record.Eval{
			Step: e.Step, Loss: record.Number(e.Loss), Averaged: record.Number(e.Averaged), BitsPerByte: record.Number(e.BitsPerByte), Sequences: e.Sequences,
			Tasks: RecordedTasks(e.Tasks),
		})
	}
	if c.Probe == nil || len(c.State.Balancer.Layers) == 0 {
		return nil
	}
	lines, err := c.choices(e.Step)
	if err == nil && c.State.Pipe != nil {
		lines, err = gatherLines(c.Comm, lines)
	}
	if err != nil || !c.lead() {
		return err
	}
	slices.SortFunc(lines, func(a, b record.Choices) int { return cmp.Compare(a.Layer, b.Layer) })
	for _, line := range lines {
		c.out.Choices(line)
	}
	return nil
}

// choices returns the choices of the probe's tokens in this rank's layers. In a pipeline, a pass
// has no more sequences than in training, for which messages have room. It is collective.
func (c *Recorder) choices(step int) ([]record.Choices, error) {
	by := map[int]record.Choices{}
	c.State.Observe(func(name string, t tensor.Tensor) {
		if layer, ok := layerOfChoices(name); ok {
			line := record.Choices{Step: step, Layer: layer, TopK: t.Dim(1), Experts: by[layer].Experts}
			for _, e := range t.I32() {
				line.Experts = binary.LittleEndian.AppendUint16(line.Experts, uint16(e))
			}
			by[layer] = line
		}
	})
	defer c.State.Observe(nil)
	n := c.Probe.windows.Len()
	each := n
	if c.State.Pipe != nil {
		each = min(n, c.State.Data.Micro())
	}
	for lo := 0; lo < n; lo += each {
		if _, err := c.State.Eval(c.Ex, c.probeBatch(lo, min(lo+each, n))); err != nil {
			return nil, err
		}
	}
	if !c.State.First {
		return nil, nil
	}
	return slices.Collect(maps.Values(by)), nil
}

// probeBatch returns windows [lo, hi) of the probe. It is empty on ranks that do not read it.
func (c *Recorder) probeBatch(lo, hi int) moe.Batch {
	b := moe.Batch{Seq: c.Probe.seq, GlobalSequences: c.Probe.windows.Len()}
	if !c.State.First {
		return b
	}
	row := make([]int32, c.Probe.seq+1)
	for i := lo; i < hi; i++ {
		c.Probe.windows.Read(row, i)
		b.Inputs, b.Targets = append(b.Inputs, row[:c.Probe.seq]...), append(b.Targets, row[1:]...)
	}
	if c.Cfg.DocumentMask {
		b.First = make([]int32, len(b.Inputs))
		datasets.DocumentStarts(b.First, b.Inputs, c.Probe.seq, c.Probe.separator)
	}
	return b
}

// layerOfChoices returns the layer whose expert choices an activation with this name holds:
// [tokens, top-k] INT32.
func layerOfChoices(name string) (layer int, ok bool) {
	n, err := fmt.Sscanf(name, "layer%d_topk_index", &layer)
	return layer, n == 1 && err == nil
}

// gatherLines returns the lines of all ranks, in their order. It is collective.
func gatherLines[T any](c *collective.Comm, mine []T) (all []T, err error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := state.GatherTexts(c, string(text))
	for _, text := range texts {
		var lines []T
		if err := json.Unmarshal([]byte(text), &lines); err != nil {
			return nil, err
		}
		all = append(all, lines...)
	}
	return all, err
}
