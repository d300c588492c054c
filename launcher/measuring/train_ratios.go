package measuring

// train --record-ratios: measure routing and the breakdown of time while a run trains, and write
// OUT/ratios.json, which project --ratios reads.

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"

	"spmoe/bench/ratios"
	"spmoe/collective"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/tensor/cpu"
)

// OpenRatios reads a file of ratios.
func OpenRatios(path string) (f ratios.File, err error) {
	text, err := system.ReadFile(path, ratios.MaxSize)
	if err != nil {
		return f, err
	}
	if f, err = ratios.Parse(text); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return f, err
}

// ratioShape is a run's model as a file of ratios describes it.
func ratioShape(cfg config.Config) ratios.Shape {
	m := cfg.Model
	return ratios.Shape{Name: cfg.Flavor, Dim: m.Dim, Layers: m.Layers, Experts: m.Experts, TopK: m.TopK, Groups: m.Groups, Limit: m.TopKGroups, Seq: cfg.Seq}
}

// thisMachine describes the machine for a file of ratios.
func thisMachine(cores int) ratios.Machine {
	return ratios.Machine{CPU: cpu.Model(), Tier: cpu.Best().String(), Cores: cores, System: runtime.GOOS + "/" + runtime.GOARCH, Version: system.Version()}
}

// ratioMeter counts where the tokens of one rank go. It is a [trainer.RoutingMeter].
type ratioMeter struct {
	*ratios.Meter
	of   events.Routing
	cfg  config.Config
	held *system.FolderLock // the run's folder
}

// RoutingMeters returns a function that creates a rank's meter.
func RoutingMeters(cfg config.Config, held *system.FolderLock) func(events.Routing) (events.RoutingMeter, error) {
	return func(of events.Routing) (events.RoutingMeter, error) {
		meter, err := ratios.NewMeter(ratioShape(cfg), of.Layers, of.Ranks)
		return &ratioMeter{meter, of, cfg, held}, err
	}
}

// Step implements [trainer.RoutingMeter].
func (m *ratioMeter) Step(loads []int64, rows []int32) {
	m.Meter.Step(loads)
	for row := range slices.Chunk(rows, m.cfg.Seq+1) {
		m.Sequence(row[:m.cfg.Seq], m.of.Separator)
	}
}

// Report implements [trainer.RoutingMeter]. The leading rank writes the file.
func (m *ratioMeter) Report(c *collective.Comm, p events.Profile) error {
	f, err := m.Gather(c)
	if err != nil || c.Rank() != 0 {
		return err
	}
	f.Origin, f.Machine = "train", thisMachine(m.of.Cores)
	if p.Step.Mean > 0 {
		f.Phases = map[string]float64{}
		for _, family := range p.Families {
			f.Phases[family.Name] = family.Mean.Seconds() / p.Step.Mean.Seconds()
		}
	}
	if err := m.held.Check(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(m.cfg.Out, ratios.Name), append(text, '\n'))
}
