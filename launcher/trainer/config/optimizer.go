package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/weights"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Optimizer is an optimizer with its schedule.
type Optimizer struct {
	optim.Schedule
	optim.Config
}

// Rule returns the rule of the optimizer, which also averages the weights if ema says so.
func (c Config) Rule() (optim.Rule, error) {
	rule, err := c.Optimizer.Rule()
	if err != nil {
		return nil, err
	}
	return optim.Averaged(rule, c.EMA), nil
}

// SameOptimizer returns an error unless a checkpoint was made with the optimizer of cfg and holds
// its state. The type of AdamW's moments may differ from that of cfg: restoring converts them.
func SameOptimizer(from *checkpoint.Reader, cfg Config) error {
	saved, err := savedOptimizer(from.ConfigTOML())
	if err != nil {
		return fmt.Errorf("%s: config.toml: %w", from.Path(), err)
	}
	name := cfg.Optimizer.RuleName()
	switch {
	case saved.Optimizer.RuleName() != name:
		return fmt.Errorf("%s was trained with optimizer %s, not %s: leave --optimizer.name out, or start a new run from its weights with --init-from",
			from.Path(), saved.Optimizer.RuleName(), name)
	case saved.EMA != 0 && cfg.EMA == 0:
		return fmt.Errorf("%s holds averaged weights (ema %g), which the run has to continue: leave --ema out", from.Path(), saved.EMA)
	case saved.EMA == 0 && cfg.EMA != 0:
		return fmt.Errorf("%s holds no averaged weights to continue: leave --ema out, or start a new run from its weights with --init-from", from.Path())
	}
	here := cfg
	here.Optimizer.Moments = saved.Optimizer.Moments
	rule, err := here.Rule()
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, v := range optim.StateVectors(rule) {
		want[v.Name] = checkpointType(v.DType)
	}
	if has := VectorsIn(from); !maps.Equal(has, want) {
		return fmt.Errorf("%s holds %s as the state of optimizer %s, which has %s here: resume with the program that saved it",
			from.Path(), VectorList(has), name, VectorList(want))
	}
	return nil
}

// optimizerOfRun is the part of a run's configuration that says what the optimizer's state is.
type optimizerOfRun struct {
	EMA       float64      `toml:"ema"`
	Optimizer optim.Config `toml:"optimizer"`
}

// savedOptimizer returns the optimizer of a run's configuration.
func savedOptimizer(config []byte) (c optimizerOfRun, err error) {
	if err := toml.Unmarshal(config, &c); err != nil {
		return c, fmt.Errorf("%.500s", err.Error())
	}
	return c, nil
}

// VectorsIn returns the element type of each vector of the optimizer's rule in a checkpoint, by
// name.
func VectorsIn(r *checkpoint.Reader) map[string]string {
	types := map[string]string{}
	for name := range r.Tensors() {
		if !strings.HasPrefix(name, weights.MasterPrefix) && !strings.HasPrefix(name, weights.BiasPrefix) {
			vector, _, _ := strings.Cut(name, "/")
			types[vector] = r.DType(name)
		}
	}
	return types
}

// checkpointType names the type of a vector's elements as checkpoints do.
func checkpointType(t tensor.DType) string {
	if t == tensor.BF16 {
		return safetensors.BF16
	}
	return safetensors.F32
}

// VectorList returns the names of state vectors with their types.
func VectorList(types map[string]string) string {
	if len(types) == 0 {
		return "nothing"
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(types)) {
		all = append(all, name+" ("+types[name]+")")
	}
	return strings.Join(all, ", ")
}
