package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"spmoe/bench"
	"spmoe/tensor/cpu"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	quick bool
	json  string
}

func defineBench(fs *flag.FlagSet) func(context.Context, env) error {
	f := &benchFlags{}
	fs.BoolVar(&f.quick, "quick", false, "fewer shapes and rounds: under 40 seconds")
	fs.StringVar(&f.json, "json", "", "`FILE` to write results to, one JSON object a line")
	return f.run
}

func (f *benchFlags) run(ctx context.Context, env env) (err error) {
	if len(env.args) != 1 || env.args[0] != "kernels" {
		return fmt.Errorf("bench %q: say what to measure: kernels", strings.Join(env.args, " "))
	}
	var file *os.File
	if f.json != "" {
		if file, err = os.Create(f.json); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	fmt.Fprintf(env.out, "one core of %s, tier %s; medians, kernel and limit measured in turns\n", cpu.Model(), cpu.Best())
	fmt.Fprintf(env.out, "%-22s %-20s %10s %-8s %9s %6s  %s\n", "kernel", "shape", "rate", "", "limit", "share", "the limit is")
	var failed error
	bench.Kernels(f.quick, func(r bench.Result) {
		fmt.Fprintf(env.out, "%-22s %-20s %10.1f %-8s %9.1f %5.1f%%  %s\n", r.Name, r.Shape, r.Value, r.Unit, r.Limit, 100*r.Share, r.Bound)
		if file != nil {
			failed = errors.Join(failed, json.NewEncoder(file).Encode(r))
		}
	})
	return failed
}
