package trainer

// What a projection onto other machines needs of a run, measured while it trains: where tokens go, and where the time.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"spmoe/bench/ratios"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// ratioMeter counts this rank's part. A nil ratioMeter counts nothing.
type ratioMeter struct {
	*ratios.Meter
	separator int32 // token between documents
	seq       int
}

// RatioShape is a model as a file of ratios describes it.
func RatioShape(name string, m moe.Config, seq int) ratios.Shape {
	return ratios.Shape{Name: name, Dim: m.Dim, Layers: m.Layers, Experts: m.Experts, TopK: m.TopK, Groups: m.Groups, Limit: m.TopKGroups, Seq: seq}
}

// ThisMachine describes the machine for a file of ratios.
func ThisMachine(cores int) ratios.Machine {
	return ratios.Machine{CPU: cpu.Model(), Tier: cpu.Best().String(), Cores: cores, System: runtime.GOOS + "/" + runtime.GOARCH, Version: system.Version()}
}

func (j *Job) ratioMeter(routings []moe.Routing) (*ratioMeter, error) {
	if !j.Ratios || len(routings) == 0 {
		return nil, nil
	}
	var layers []int
	for _, r := range routings {
		layers = append(layers, r.Layer)
	}
	meter, err := ratios.NewMeter(RatioShape(j.cfg.Flavor, j.cfg.Model, j.cfg.Seq), layers, j.ranks)
	if err != nil {
		return nil, err
	}
	m := &ratioMeter{Meter: meter, separator: -1, seq: j.cfg.Seq}
	if end := j.tokenizer.Encode([]byte{0}); len(end) == 1 {
		m.separator = end[0]
	}
	return m, nil
}

// watch makes the model show its choices of experts, or stops it.
func (m *ratioMeter) watch(model *moe.Model, on bool) {
	if m == nil {
		return
	}
	if !on {
		model.Observe(nil)
		return
	}
	model.Observe(func(name string, t tensor.Tensor) {
		var layer int
		if n, err := fmt.Sscanf(name, "layer%d_topk_index", &layer); n == 1 && err == nil {
			m.Choices(layer, t.I32(), t.Dim(1))
		}
	})
}

// step counts a step: the loads of all ranks' tokens, and this rank's sequences, [n, seq+1].
func (m *ratioMeter) step(loads []int64, rows []int32) {
	if m == nil {
		return
	}
	m.Step(loads)
	for row := range slices.Chunk(rows, m.seq+1) {
		m.Sequence(row[:m.seq], m.separator)
	}
}

// reportRatios writes what was measured into the run's folder. It is collective.
func (r *rank) reportRatios(p Profile) error {
	if r.ratios == nil {
		return nil
	}
	f, err := r.ratios.Gather(r.comm)
	if err != nil || !r.lead() {
		return err
	}
	f.Origin, f.Machine = "train", ThisMachine(r.job.cores)
	if p.Step.Mean > 0 {
		f.Phases = map[string]float64{}
		for _, family := range p.Families {
			f.Phases[family.Name] = family.Mean.Seconds() / p.Step.Mean.Seconds()
		}
	}
	return WriteRatios(filepath.Join(r.cfg.Out, ratios.Name), f)
}

// WriteRatios writes a file of ratios whole.
func WriteRatios(path string, f ratios.File) error {
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return system.WriteFile(path, append(text, '\n'))
}
