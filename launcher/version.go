package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/system"
	"spmoe/tensor/cpu"
)

func defineVersion(*flag.FlagSet) action {
	return func(_ context.Context, env env) error {
		if len(env.args) > 0 {
			return errors.New("version takes no arguments")
		}
		built := []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				switch {
				case s.Key == "vcs.time":
					built = append(built, "revision of "+s.Value)
				case s.Key == "-tags" || s.Key == "-race":
					built = append(built, strings.TrimPrefix(s.Key, "-")+"="+s.Value)
				}
			}
		}
		fmt.Fprintf(env.out, "launcher %s\n", system.Version())
		fmt.Fprintf(env.out, "built:  %s\n", strings.Join(built, ", "))
		fmt.Fprintf(env.out, "cpu:    %s, %d cores\n", cpu.Model(), runtime.NumCPU())
		fmt.Fprintf(env.out, "text:   %s\n", datasets.DescribeBuiltin())
		fmt.Fprintf(env.out, "tier:   %s", cpu.Best())
		if best := cpu.Detected().Best(); best != cpu.Best() {
			fmt.Fprintf(env.out, ", lowered from %s by %s", best, cpu.EnvVar)
		}
		fmt.Fprintln(env.out)
		return writeTiers(env.out, cpu.Detected(), cpu.Best())
	}
}
