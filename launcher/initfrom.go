package main

// A run that starts from weights has their model. Flags and configuration file need not describe
// it, and must not contradict it.

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"spmoe/internal/stricttoml"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer"
	"spmoe/launcher/weights"
	"spmoe/moe"
)

// configured is resolve for a run that may be new: if it is to start from weights, the model is
// theirs. Once the run has a checkpoint, that one is asked: where it started from may be gone.
func configured(from defaults, name string, text []byte, given []assignment) (trainer.Config, error) {
	cfg, err := resolve(from, name, text, given)
	if err != nil {
		return cfg, err
	}
	if cfg.InitFrom == "" {
		return cfg, fitVocabulary(&cfg, text, given)
	}
	source, model, tokenizer, err := startOf(cfg)
	if err != nil {
		return cfg, fmt.Errorf("init_from: %w", err)
	}
	var explicit trainer.Config
	if err := stricttoml.Unmarshal(text, &explicit); err != nil {
		return cfg, locate(name, err)
	}
	if apply(&explicit, given); explicit.Flavor == "" {
		like := func(flavor string, steps int) (trainer.Config, error) {
			c, err := from(flavor, steps)
			c.Model = model
			return c, err
		}
		if cfg, err = resolve(like, name, text, given); err != nil {
			return cfg, err
		}
	}
	if explicit.Tokenizer == "" && tokenizer != "" {
		cfg.Tokenizer = tokenizer
	}
	if other := differences(reflect.ValueOf(cfg.Model), reflect.ValueOf(model), "model."); len(other) > 0 {
		return cfg, fmt.Errorf("the weights in %s are of another model: %s: leave out what says so, or start from other weights", source, strings.Join(other, ", "))
	}
	return cfg, nil
}

// startOf returns where a run's first weights are from, or its own folder once it has a checkpoint,
// and their model and tokenizer; no name of one if there is none.
func startOf(cfg trainer.Config) (source string, model moe.Config, tokenizer string, err error) {
	if cfg.Out != "" {
		step, text, err := newestNow(cfg.Out)
		if err == nil {
			saved, err := resolve(trainDefaults, filepath.Join(step, "config.toml"), text, nil)
			return cfg.Out, saved.Model, saved.Tokenizer, err
		} else if !errors.Is(err, checkpoint.ErrNone) {
			return cfg.Out, model, "", err
		}
	}
	if model, err = weights.ReadConfig(cfg.InitFrom); err == nil {
		tokenizer, err = weights.ReadTokenizer(cfg.InitFrom)
	}
	return cfg.InitFrom, model, tokenizer, err
}

// trainingOnly are the settings of a model that no weights depend on.
var trainingOnly = []string{"model.force_balance", "model.bias_speed", "model.balance_alpha", "model.mtp_weight", "model.max_positions"}

// differences lists the settings in which a model differs from another, for people.
func differences(got, want reflect.Value, prefix string) (all []string) {
	for i := range got.NumField() {
		name, a, b := prefix+got.Type().Field(i).Tag.Get("toml"), got.Field(i), want.Field(i)
		switch {
		case slices.Contains(trainingOnly, name):
		case a.Kind() == reflect.Struct:
			all = append(all, differences(a, b, name+".")...)
		case !a.Equal(b):
			all = append(all, fmt.Sprintf("%s is %v there and %v here", name, b, a))
		}
	}
	return all
}
