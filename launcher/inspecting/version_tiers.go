package inspecting

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"spmoe/tensor/cpu"
)

// WriteTiers prints the tiers of a CPU with these features, why one is in use, and its kernels.
func WriteTiers(out io.Writer, has cpu.Features, used cpu.Tier) error {
	why := "the best tier found that is not slow here"
	if used != has.Best() {
		why = cpu.EnvVar + " names it"
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "why:    %s\n", why)
	fmt.Fprintln(table, "tiers of this CPU and build:")
	for _, t := range cpu.All() {
		state, reason := tierState(has, t)
		if t == used {
			state = "in use"
		}
		fmt.Fprintf(table, "  %v\t%s\t%s\n", t, state, reason)
	}
	fmt.Fprintln(table, "kernels in use:")
	for _, family := range cpu.Families() {
		row, note := family.Row(used), ""
		if row != used {
			note = fmt.Sprintf("\t%v adds no kernels of its own", used)
		}
		fmt.Fprintf(table, "  %s\t%v%s\n", family.Name, row, note)
	}
	return table.Flush()
}

// tierState reports whether a CPU has a tier, and the features that decide it.
func tierState(has cpu.Features, t cpu.Tier) (state, reason string) {
	if missing := has.Missing(t); len(missing) > 0 {
		return "missing", "no " + cpu.FeatureNames(missing)
	}
	if slow := has.Slow(t); len(slow) > 0 {
		return "slow", "no " + cpu.FeatureNames(slow)
	}
	found := cpu.FeatureNames(slices.Concat(t.Needs(), t.Wants()))
	switch t.Base() {
	case "":
		return "found", "plain Go"
	case cpu.Generic:
		return "found", found
	}
	return "found", fmt.Sprintf("%v and %s", t.Base(), found)
}
