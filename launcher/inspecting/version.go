package inspecting

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"spmoe/datasets"
	"spmoe/launcher/report"
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
	fmt.Fprintf(out, "cpu:    %s, %s\n", cpu.Model(), report.Plural(runtime.NumCPU(), "core"))
	fmt.Fprintf(out, "text:   %s\n", datasets.DescribeBuiltin())
	return WriteTiers(out, cpu.Detected(), cpu.Best())
}

// WriteTiers prints the tier in use, the tiers of a CPU with these features, and the kernels.
func WriteTiers(out io.Writer, has cpu.Features, used cpu.Tier) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "tier:   %s", used)
	if best := has.Best(); best != used {
		fmt.Fprintf(table, ", lowered from %s by %s", best, cpu.EnvVar)
	}
	fmt.Fprintln(table, "\ntiers of this CPU and build:")
	for _, t := range cpu.All() {
		state := "found"
		if missing := has.Missing(t); len(missing) > 0 {
			state = "missing\tno " + cpu.FeatureNames(missing)
		} else if slow := has.Slow(t); len(slow) > 0 {
			state = "slow\tno " + cpu.FeatureNames(slow)
		}
		if t == used {
			state = "in use"
		}
		fmt.Fprintf(table, "  %v\t%s\n", t, state)
	}
	fmt.Fprintln(table, "kernels in use:")
	for _, family := range cpu.Families() {
		fmt.Fprintf(table, "  %s\t%v\n", family.Name, family.Row(used))
	}
	return table.Flush()
}
