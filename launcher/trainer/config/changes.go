package config

// What a resumed run may change of its configuration.

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"spmoe/internal/stricttoml"
)

// Effect is what changing a setting does to a run that resumes. The tag "resume" of its field in
// [Config] names it. A section's tag holds for its keys that have none.
type Effect string

const (
	Harmless   Effect = "harmless"   // it concerns speed, memory, the record or the end: nothing to ask
	Verified   Effect = "verified"   // another value may mean the same; what is resumed is compared with it
	Meaningful Effect = "meaningful" // the steps to come differ from those of the run as it was begun
	Fixed      Effect = "fixed"      // the state in the checkpoint has no meaning with another value
)

// Key is a setting, with what the tags of its field or of its section say.
type Key struct {
	Name   string // as in "optimizer.lr"
	Group  string // of its flag, in the help
	Range  string // of its values, such as "0..1024" or "1.."; empty: any
	Help   string
	Effect Effect
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
	EachSetting(saved, func(key Key, v any) { old[key.Name] = v })
	EachSetting(cfg, func(key Key, v any) {
		was := old[key.Name]
		if reflect.DeepEqual(was, v) || err != nil || key.Name == "out" {
			return
		}
		if key.Effect == Fixed {
			err = fmt.Errorf("%s is %s in %s, not %s: a resumed run cannot change it: leave %s out, or start a new run (with --init-from for these weights)",
				key.Name, Value(was), from, Value(v), key.Name)
			return
		}
		// The decay of a shorter schedule begins earlier.
		shorter := (key.Name == "steps" || key.Name == "schedule_steps") && cfg.PlannedSteps() < saved.PlannedSteps()
		all = append(all, Change{key.Name, was, v, shorter || key.Effect == Meaningful})
	})
	return all, err
}

// EachSetting calls visit with every key of a configuration, in the order of config files, and its
// value.
func EachSetting(cfg Config, visit func(key Key, v any)) {
	eachSetting(reflect.ValueOf(cfg), "", Key{}, visit)
}

// eachSetting visits the keys below a section, whose tags section has.
func eachSetting(v reflect.Value, prefix string, section Key, visit func(key Key, v any)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := Key{
			Name:   prefix + stricttoml.Key(f),
			Group:  cmp.Or(f.Tag.Get("group"), section.Group),
			Range:  f.Tag.Get("range"),
			Help:   f.Tag.Get("help"),
			Effect: cmp.Or(Effect(f.Tag.Get("resume")), section.Effect),
		}
		switch {
		case f.Anonymous:
			eachSetting(v.Field(i), prefix, key, visit)
		case f.Type.Kind() == reflect.Struct:
			eachSetting(v.Field(i), key.Name+".", key, visit)
		default:
			visit(key, v.Field(i).Interface())
		}
	}
}
