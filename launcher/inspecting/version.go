package inspecting

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/cli"
	"spmoe/launcher/system"
	"spmoe/tensor/cpu"
)

// DefineVersion defines the flags of version: none.
func DefineVersion(*flag.FlagSet) cli.Action {
	return func(_ context.Context, env cli.Env) error {
		if len(env.Args) > 0 {
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
		fmt.Fprintf(env.Out, "launcher %s\n", system.Version())
		fmt.Fprintf(env.Out, "built:  %s\n", strings.Join(built, ", "))
		fmt.Fprintf(env.Out, "cpu:    %s, %d cores\n", cpu.Model(), runtime.NumCPU())
		fmt.Fprintf(env.Out, "text:   %s\n", datasets.DescribeBuiltin())
		fmt.Fprintf(env.Out, "tier:   %s", cpu.Best())
		if best := cpu.Detected().Best(); best != cpu.Best() {
			fmt.Fprintf(env.Out, ", lowered from %s by %s", best, cpu.EnvVar)
		}
		fmt.Fprintln(env.Out)
		return WriteTiers(env.Out, cpu.Detected(), cpu.Best())
	}
}
