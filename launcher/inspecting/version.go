package inspecting

import (
	"errors"
	"fmt"
	"io"
	"runtime"
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
	fmt.Fprintf(out, "launcher %s\n", system.Version())
	fmt.Fprintf(out, "built:  %s, %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(out, "cpu:    %s, %s\n", cpu.Model(), report.Plural(runtime.NumCPU(), "core"))
	fmt.Fprintf(out, "text:   %s\n", datasets.DescribeBuiltin())
	has, used := cpu.Detected(), cpu.Best()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "tiers of this CPU and build, %s in use (%s lowers it):\n", used, cpu.EnvVar)
	for _, t := range cpu.All() {
		state := "found"
		if missing := has.Missing(t); len(missing) > 0 {
			state = "missing\tno " + cpu.FeatureNames(missing)
		} else if slow := has.Slow(t); len(slow) > 0 {
			state = "slow\tno " + cpu.FeatureNames(slow)
		}
		fmt.Fprintf(table, "  %v\t%s\n", t, state)
	}
	fmt.Fprintln(table, "kernels in use:")
	for _, family := range cpu.Families() {
		fmt.Fprintf(table, "  %s\t%v\n", family.Name, family.Row(used))
	}
	return table.Flush()
}
