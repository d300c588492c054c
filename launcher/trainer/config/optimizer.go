package config

import (
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Optimizer is an optimizer with its schedule.
type Optimizer struct {
	optim.Schedule
	optim.Config
}

// SameOptimizer returns an error unless a checkpoint was made with the optimizer of cfg and holds
// its state. The type of AdamW's moments may differ from that of cfg: restoring converts them.
func SameOptimizer(from *checkpoint.Reader, cfg Config) error {
	saved, err := savedOptimizer(from.ConfigTOML())
	if err != nil {
		return fmt.Errorf("%s: config.toml: %w", from.Path(), err)
	}
	if name := cfg.Optimizer.RuleName(); saved.Optimizer.RuleName() != name {
		return fmt.Errorf("%s was trained with optimizer %s, not %s: leave optimizer.name out, or start a new run from its weights with --init-from",
			from.Path(), saved.Optimizer.RuleName(), name)
	}
	given := cfg.Optimizer.Config
	given.Moments = saved.Optimizer.Moments
	want, err := optimizerOfRun{saved.EMA, given}.contents(cfg.Model)
	if err != nil {
		return err
	}
	if err := from.Match(want); err != nil {
		return fmt.Errorf("%s is of another model or optimizer: %w: leave the --model flags out, or resume with the program that saved it", from.Path(), err)
	}
	return nil
}

// optimizerOfRun is the part of a run's configuration that says what the optimizer's state is.
type optimizerOfRun struct {
	EMA       float64      `toml:"ema"` // of an earlier version; not 0: checkpoints hold averaged weights
	Optimizer optim.Config `toml:"optimizer"`
}

// savedOptimizer returns the optimizer of a run's configuration.
func savedOptimizer(config []byte) (c optimizerOfRun, err error) {
	if err := toml.Unmarshal(config, &c); err != nil {
		return c, fmt.Errorf("%.500s", err.Error())
	}
	return c, nil
}

// Contents returns the tensors of a checkpoint with this configuration, whatever the layout of its
// ranks.
func Contents(configTOML []byte) (map[string]checkpoint.Tensor, error) {
	model, err := weights.ParseModel(configTOML)
	if err != nil {
		return nil, err
	}
	saved, err := savedOptimizer(configTOML)
	if err != nil {
		return nil, err
	}
	return saved.contents(model)
}

// contents is [Contents] of a run with this model.
func (o optimizerOfRun) contents(model moe.Config) (map[string]checkpoint.Tensor, error) {
	rule, err := o.Optimizer.Rule()
	if err != nil {
		return nil, err
	}
	dry, err := moe.NewDryRun(moe.DryMesh(mesh.Default(1), 1, 0), model, moe.Unquantized(tensor.FP32), 1, ep.Options{}, model.Whole(), false)
	if err != nil {
		return nil, err
	}
	weight := []optim.Vector{{Name: optim.MasterName, DType: tensor.FP32}}
	if o.EMA != 0 {
		weight = append(weight, optim.Vector{Name: "ema", DType: tensor.FP32})
	}
	all := map[string]checkpoint.Tensor{}
	for _, g := range dry.Groups {
		for _, p := range g.Params {
			for _, v := range slices.Concat(weight, rule.Of(p.Class).Vectors()) {
				t := checkpoint.Tensor{Shape: p.Dims, DType: safetensors.F32}
				if v.DType == tensor.BF16 {
					t.DType = safetensors.BF16
				}
				all[v.Name+"/"+p.Name] = t
			}
		}
	}
	for _, route := range dry.Routings() {
		all[weights.BiasPrefix+route.Name] = checkpoint.Tensor{Shape: route.Bias.Dims(), DType: safetensors.F32}
	}
	return all, nil
}
