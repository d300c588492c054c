package trainer

// What a resumed run may change of its configuration.

import (
	"fmt"
	"reflect"
	"strings"

	"spmoe/internal/stricttoml"
)

// effect is what changing a setting does to a run that resumes.
type effect int

const (
	unclassified effect = iota
	harmless            // it concerns speed, memory, the record or the end: nothing to ask
	verified            // another value may mean the same; what is resumed is compared with it
	meaningful          // the steps to come differ from those of the run as it was begun
	fixed               // the state in the checkpoint has no meaning with another value
)

// effects classifies every key of the configuration, or its section as a whole.
var effects = map[string]effect{
	"flavor": fixed, "tokenizer": fixed, "end_token": fixed, "data_rules": fixed, "init_from": fixed, "seq": fixed, "seed": fixed,
	"steps": harmless,                         // fewer than before are meaningful: the decay begins earlier
	"data":  verified, "data_field": verified, // the text must be the same, wherever it is
	"batch": meaningful, "document_mask": meaningful,
	"precision": meaningful, "recipe": meaningful, "mx": meaningful, "nvfp4": meaningful, "fp8": meaningful, "ep_dispatch": meaningful, "ep_combine_backward": meaningful, "ep_capacity": meaningful,
	"optimizer": meaningful, "optimizer.name": verified, "ema": meaningful,

	"model":       fixed, // its parameters, that is
	"model.top_k": meaningful, "model.groups": meaningful, "model.top_k_groups": meaningful, "model.score_func": meaningful,
	"model.norm_top_k": meaningful, "model.route_scale": meaningful, "model.force_balance": meaningful,
	"model.bias_speed": meaningful, "model.balance_alpha": meaningful, "model.mtp_weight": meaningful,
	"model.norm_eps": meaningful, "model.rope_theta": meaningful, "model.yarn": meaningful, "model.max_positions": harmless,

	"micro_batch": harmless, // another number of passes gives the same sums to rounding, as another number of ranks does
	"recompute":   harmless, "dp_replicate": harmless, "dp_shard": harmless, "fsdp": harmless, "ep": harmless, "pp": harmless, "pp_schedule": harmless, "pp_stages_per_rank": harmless, "pp_layout": harmless, "pp_microbatches": harmless, "pp_overlap": harmless, "ep_exchange": harmless, "threads": harmless,
	"out": harmless, "save_every": harmless, "save_async": harmless, "save_retry": harmless, "keep": harmless,
	"log_every": harmless, "eval_every": harmless, "eval_sequences": harmless, "eval_tasks": harmless, "record_every": harmless,
	"record_routes": harmless, "replay_routes": meaningful, "replay_weights": meaningful,
	"sample_every": harmless, "sample_tokens": harmless, "sample_prompt": harmless, "guard": harmless,
}

// effectOf returns the effect of a key, or else that of the innermost section that has one.
func effectOf(key string) effect {
	for {
		if e := effects[key]; e != unclassified {
			return e
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return unclassified
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
	return fmt.Sprintf("%s: %s -> %s", c.Key, value(c.Old), value(c.New))
}

func value(v any) string {
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
	eachSetting(reflect.ValueOf(saved), "", func(key string, v any) { old[key] = v })
	eachSetting(reflect.ValueOf(cfg), "", func(key string, v any) {
		was := old[key]
		if reflect.DeepEqual(was, v) || err != nil || key == "out" {
			return
		}
		if effectOf(key) == fixed {
			err = fmt.Errorf("%s is %s in %s, not %s: a resumed run cannot change it: leave --%s out, or start a new run (with --init-from for these weights)",
				key, value(was), from, value(v), strings.ReplaceAll(key, "_", "-"))
			return
		}
		shorter := key == "steps" && cfg.Steps < saved.Steps
		all = append(all, Change{key, was, v, shorter || effectOf(key) == meaningful})
	})
	return all, err
}

// eachSetting calls visit with every key below a section of the configuration, and its value.
func eachSetting(v reflect.Value, prefix string, visit func(key string, v any)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch key := prefix + stricttoml.Key(f); {
		case f.Anonymous:
			eachSetting(v.Field(i), prefix, visit)
		case f.Type.Kind() == reflect.Struct:
			eachSetting(v.Field(i), key+".", visit)
		default:
			visit(key, v.Field(i).Interface())
		}
	}
}
