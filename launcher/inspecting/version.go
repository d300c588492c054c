package inspecting

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"spmoe/datasets"
	"spmoe/launcher/system"
	"spmoe/tensor/cpu"
)

// PrintVersion prints the version, the build and the CPU's instruction tiers.
func PrintVersion(args []string, out io.Writer) error {
	if len(args) > 0 {
		return errors.New("--version takes no arguments")
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
	fmt.Fprintf(out, "launcher %s\n", system.Version())
	fmt.Fprintf(out, "built:  %s\n", strings.Join(built, ", "))
	fmt.Fprintf(out, "cpu:    %s, %d cores\n", cpu.Model(), runtime.NumCPU())
	fmt.Fprintf(out, "text:   %s\n", datasets.DescribeBuiltin())
	fmt.Fprintf(out, "tier:   %s", cpu.Best())
	if best := cpu.Detected().Best(); best != cpu.Best() {
		fmt.Fprintf(out, ", lowered from %s by %s", best, cpu.EnvVar)
	}
	fmt.Fprintln(out)
	return WriteTiers(out, cpu.Detected(), cpu.Best())
}
