package main

// The command data: what training text holds, and its way to tokens.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"spmoe/datasets"
)

// dataFlags are the flags of data, of which each action takes some.
type dataFlags struct {
	data      []string // paths, those given as arguments included
	field     string
	tokenizer string
	out       string
	vocab     int
	samples   int
	json      bool
}

// dataAction is what can be done with data.
type dataAction struct {
	name  string
	flags []string // that it takes
	run   func(f *dataFlags, ctx context.Context, env env) error
}

func dataActions() []dataAction {
	return []dataAction{
		{"tokenize", []string{"data", "data-field", "tokenizer", "out"}, (*dataFlags).tokenize},
		{"inspect", []string{"data", "data-field", "tokenizer", "samples", "json"}, (*dataFlags).inspect},
		{"train-tokenizer", []string{"data", "data-field", "vocab", "out"}, (*dataFlags).trainTokenizer},
	}
}

func defineData(fs *flag.FlagSet) func(context.Context, env) error {
	f := &dataFlags{}
	fs.Func("data", "`PATH` of files, folders and globs, as train takes them; none: the Go installation's own sources", func(path string) error {
		f.data = append(f.data, path)
		return nil
	})
	fs.StringVar(&f.field, "data-field", datasets.DefaultField, "`NAME` of the field or column that holds the text in JSONL, Parquet and Arrow files")
	fs.StringVar(&f.tokenizer, "tokenizer", "bytes", "`NAME` of the tokenizer, as train takes it")
	fs.StringVar(&f.out, "out", "", "`FILE` to write")
	fs.IntVar(&f.vocab, "vocab", 8192, "`N` tokens of a new tokenizer")
	fs.IntVar(&f.samples, "samples", 3, "`N` documents of each source that inspect prints the beginning of")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	return func(ctx context.Context, env env) error { return f.run(ctx, env, fs) }
}

func (f *dataFlags) run(ctx context.Context, env env, fs *flag.FlagSet) error {
	actions := dataActions()
	var all []string
	for _, a := range actions {
		all = append(all, a.name)
	}
	choice := strings.Join(all, ", ")
	if len(env.args) == 0 {
		return fmt.Errorf("data: say what to do: %s", choice)
	}
	i := slices.Index(all, env.args[0])
	if i < 0 {
		return fmt.Errorf("data %q: use %s", env.args[0], choice)
	}
	action := actions[i]
	var err error
	fs.Visit(func(given *flag.Flag) {
		if err == nil && !slices.Contains(action.flags, given.Name) {
			err = fmt.Errorf("data %s takes no --%s: use --%s", action.name, given.Name, strings.Join(action.flags, ", --"))
		}
	})
	if err != nil {
		return err
	}
	f.data = append(f.data, env.args[1:]...)
	err = action.run(f, ctx, env)
	if errors.Is(err, context.Canceled) {
		return failure{err, exitInterrupted}
	}
	return err
}
