package config

// What a resumed run may change of its configuration.

import (
	"fmt"
	"reflect"
	"strings"

	"spmoe/internal/stricttoml"
)

// Effect is what changing a setting does to a run that resumes.
type Effect int

const (
	Unclassified Effect = iota // a key without a row in Effects
	Harmless                   // it concerns speed, memory, the record or the end: nothing to ask
	Verified                   // another value may mean the same; what is resumed is compared with it
	Meaningful                 // the steps to come differ from those of the run as it was begun
	Fixed                      // the state in the checkpoint has no meaning with another value
)

// Effects classifies every key of the configuration, or its section as a whole.
var Effects = map[string]Effect{
	"flavor": Fixed, "tokenizer": Fixed, "end_token": Fixed, "data_rules": Fixed, "init_from": Fixed, "seq": Fixed, "seed": Fixed,
	"steps": Harmless, "schedule_steps": Harmless, // a shorter schedule is meaningful: the decay begins earlier
	"data": Verified, "data_field": Verified, // the text must be the same, wherever it is
	"batch": Meaningful, "document_mask": Meaningful,
	"precision": Meaningful, "sum": Meaningful, "recipe": Meaningful, "mx": Meaningful, "nvfp4": Meaningful, "fp8": Meaningful, "ep_dispatch": Meaningful, "ep_combine_backward": Meaningful, "ep_capacity": Meaningful,
	"optimizer": Meaningful, "optimizer.name": Verified, "ema": Meaningful,

	"model":       Fixed, // its parameters, that is
	"model.top_k": Meaningful, "model.groups": Meaningful, "model.top_k_groups": Meaningful, "model.score_func": Meaningful,
	"model.norm_top_k": Meaningful, "model.route_scale": Meaningful, "model.force_balance": Meaningful,
	"model.bias_speed": Meaningful, "model.balance_alpha": Meaningful, "model.mtp_weight": Meaningful,
	"model.norm_eps": Meaningful, "model.rope_theta": Meaningful, "model.yarn": Meaningful, "model.max_positions": Harmless,

	"micro_batch":  Harmless, // another number of passes gives the same bits, or the same sums to rounding in recipes that scale tensors
	"chain_passes": Harmless, "recompute": Harmless, "dp_replicate": Harmless, "dp_shard": Harmless, "cp": Harmless, "tp": Harmless, "fsdp": Harmless, "ep": Harmless, "pp": Harmless, "pp_schedule": Harmless, "pp_stages_per_rank": Harmless, "pp_layout": Harmless, "pp_microbatches": Harmless, "pp_overlap": Harmless, "ep_exchange": Harmless, "threads": Harmless,
	"out": Harmless, "save_every": Harmless, "save_async": Harmless, "save_retry": Harmless, "keep": Harmless,
	"log_every": Harmless, "eval_every": Harmless, "eval_sequences": Harmless, "eval_tasks": Harmless, "record_every": Harmless,
	"record_routes": Harmless, "replay_routes": Meaningful, "replay_weights": Meaningful,
	"sample_every": Harmless, "sample_tokens": Harmless, "sample_prompt": Harmless, "guard": Harmless,
}

// EffectOf returns the effect of a key, or else that of the innermost section that has one.
func EffectOf(key string) Effect {
	for {
		if e := Effects[key]; e != Unclassified {
			return e
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return Unclassified
		}
		key = key[:dot]
	}
}

// Change is a setting that differs between a checkpoint and the run that resumes it.
type Change struct {
	Key        string
	Old, New   any
	Meaningful bool // it changes what the run computes
}

// String implements [fmt.Stringer]: "batch: 16 -> 32".
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Key, Value(c.Old), Value(c.New))
}

// Value returns a setting as messages show it.
func Value(v any) string {
	if v == "" {
		return `""`
	}
	if text, ok := v.(string); ok && strings.Contains(text, "\n") {
		return "other text"
	}
	return fmt.Sprint(v)
}

// Changes lists how cfg differs from the configuration of a checkpoint that it resumes, in the
// order of config files. It returns an error for a setting that cannot change. from names the
// checkpoint for that error.
func Changes(saved, cfg Config, from string) (all []Change, err error) {
	old := map[string]any{}
	EachSetting(reflect.ValueOf(saved), "", func(key string, v any) { old[key] = v })
	EachSetting(reflect.ValueOf(cfg), "", func(key string, v any) {
		was := old[key]
		if reflect.DeepEqual(was, v) || err != nil || key == "out" {
			return
		}
		if EffectOf(key) == Fixed {
			err = fmt.Errorf("%s is %s in %s, not %s: a resumed run cannot change it: leave --%s out, or start a new run (with --init-from for these weights)",
				key, Value(was), from, Value(v), strings.ReplaceAll(key, "_", "-"))
			return
		}
		shorter := (key == "steps" || key == "schedule_steps") && cfg.PlannedSteps() < saved.PlannedSteps()
		all = append(all, Change{key, was, v, shorter || EffectOf(key) == Meaningful})
	})
	return all, err
}

// EachSetting calls visit with every key below a section of the configuration, and its value.
func EachSetting(v reflect.Value, prefix string, visit func(key string, v any)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch key := prefix + stricttoml.Key(f); {
		case f.Anonymous:
			EachSetting(v.Field(i), prefix, visit)
		case f.Type.Kind() == reflect.Struct:
			EachSetting(v.Field(i), key+".", visit)
		default:
			visit(key, v.Field(i).Interface())
		}
	}
}
