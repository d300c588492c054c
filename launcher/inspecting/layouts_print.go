package inspecting

// layouts: its text output.

import (
	"fmt"
	"io"
	"strings"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
)

func (l layoutList) print(out io.Writer) {
	cfg := l.cfg
	fmt.Fprintf(out, "%s, %s, on %s of %s; steps of %s of %d tokens\n", cfg.Flavor, cfg.Precision, report.Plural(l.ranks, "rank"), report.Plural(l.hosts, "host"),
		report.Plural(cfg.Batch, "sequence"), cfg.Seq)
	if l.chosen {
		l.layouts[0].print(out, cfg)
	} else {
		l.printTable(out)
	}
	for _, note := range l.notes {
		fmt.Fprintf(out, "NOTE: %s\n", note)
	}
}

// movedColumns are the columns of the table for bytes that move, each with the movements that it
// sums. The last column has all others too.
var movedColumns = []struct {
	title string
	has   func(m estimate.Movement) bool
}{
	{"exchange", func(m estimate.Movement) bool {
		return m.Kind == collective.KindDispatch || m.Kind == collective.KindCombine || m.Kind == collective.KindAllGather
	}},
	{"gradients", func(m estimate.Movement) bool { return m.Gradients() && !m.Experts() }},
	{"of experts", func(m estimate.Movement) bool { return m.Gradients() && m.Experts() }},
	{"weights", func(m estimate.Movement) bool { return m.Kind == collective.KindAllGatherV }},
}

// printTable prints one line per layout.
func (l layoutList) printTable(out io.Writer) {
	columns := []string{"experts", "replicas", "memory", "of all"}
	for _, c := range movedColumns {
		columns = append(columns, c.title)
	}
	columns = append(columns, "all", "of peers")
	if l.hosts > 1 {
		columns = append(columns, "network")
	}
	table := layoutTable{cli.NewTable(out, "layout", columns...)}
	for _, c := range l.layouts {
		table.add(c)
	}
	last := l.layouts[len(l.layouts)-1]
	for _, line := range []string{
		fmt.Sprintf("%s: %v; *: the default", last.ID, last.Layout),
		fmt.Sprintf("experts: of each layer on a rank, with 1/replicas of their optimizer state; of the dense weights' state a rank holds %s", share(last.DenseState)),
		"memory: per rank, and of all ranks",
		"then bytes that a rank moves in memory per step, the mean of all ranks: tokens to experts and back,",
		"gradients of dense weights, gradients of experts between replicas, updated weights, and all; of peers: in the memory of other ranks",
	} {
		fmt.Fprintf(out, "  %s\n", line)
	}
	if last.PP > 1 {
		fmt.Fprintf(out, "  in a pipeline: memory of the rank that needs most, with the activations of %s\n", l.cfg.PPSchedule)
	}
	if l.hosts > 1 {
		fmt.Fprintln(out, "  network: bytes that a rank sends to other hosts per step, for uniform routing")
	}
}

// layoutTable is a table with layouts.
type layoutTable struct{ cli.Table }

func (t layoutTable) add(c LayoutCosts) {
	name := "  " + c.ID
	if c.Default {
		name = "* " + c.ID
	}
	cells := []string{fmt.Sprint(c.Experts), fmt.Sprint(c.Copies), system.Bytes(c.Memory.All), system.Bytes(c.AllMemory)}
	for _, column := range movedColumns {
		cells = append(cells, bytesOf(c.Sum(column.has).Memory))
	}
	cells = append(cells, bytesOf(c.Moved.Memory), bytesOf(c.Moved.Peers))
	if c.Hosts > 1 {
		cells = append(cells, bytesOf(c.Moved.Network))
	}
	t.Row(name, cells...)
}

func bytesOf(n float64) string { return system.Bytes(int64(n)) }

// Sum returns the bytes of some movements.
func (c LayoutCosts) Sum(has func(estimate.Movement) bool) (sum estimate.Moved) {
	for _, m := range c.Movements {
		if has(m) {
			sum = sum.Plus(m.Moved)
		}
	}
	return sum
}

// print describes one layout.
func (c LayoutCosts) print(out io.Writer, cfg config.Config) {
	standing := ""
	if c.Default {
		standing = ", the default"
	}
	fmt.Fprintf(out, "%v (%s%s): efsdp %d\n", c.Layout, c.ID, standing, c.Inner)
	if c.Experts > 0 {
		fmt.Fprintf(out, "experts: a rank holds %d of the %d of each layer, %s; %s of their optimizer state\n", c.Experts, cfg.Model.Experts, replicasOf(c.Copies), share(c.ExpertState))
	}
	fmt.Fprintf(out, "dense weights: %s, and %s of their optimizer state\n", denseCopies(c.Hosts, cfg.FSDP), share(c.DenseState))
	for _, axis := range []struct {
		text string
		axes []mesh.Axis
	}{{"ep, which exchange tokens", []mesh.Axis{mesh.EP}}, {"expert replicas, which sum gradients", []mesh.Axis{mesh.DPReplicate, mesh.EFSDP}},
		{"pp, which have all stages together", []mesh.Axis{mesh.PP}}, {"cp, which share sequences", []mesh.Axis{mesh.CP}}, {"tp, which share sequences and products", []mesh.Axis{mesh.TP}}, {"dp_shard", []mesh.Axis{mesh.DPShard}}, {"dp_replicate", []mesh.Axis{mesh.DPReplicate}}} {
		if first := axis.axes[0]; c.Degree(first) == 1 && (first == mesh.PP || first == mesh.CP || first == mesh.TP) {
			continue
		}
		groups := c.Groups(axis.axes...)
		fmt.Fprintf(out, "groups of %s: %s of %s, the first with %s\n", axis.text, report.Plural(len(groups), "group"), report.Plural(len(groups[0]), "rank"), rankList(groups[0]))
	}
	table := cli.NewTable(out, "memory", "weights", "gradients", "optimizer", "activations", "snapshot", "all")
	var all events.Memory
	for place, m := range c.Places {
		name := "per rank"
		if c.PP > 1 {
			name = fmt.Sprintf("per rank, %d of pp", place)
		}
		memoryRow(table, name, m.Memory)
		all = all.Plus(m.Memory.Times(c.StageRanks()))
	}
	memoryRow(table, "of all ranks", all)
	table = cli.NewTable(out, "moved per rank and step", "memory", "of peers", "network")
	for _, m := range append(c.Movements, estimate.Movement{Name: "all", Moved: c.Moved}) {
		table.Row(m.Name, bytesOf(m.Memory), bytesOf(m.Peers), bytesOf(m.Network))
	}
}

func memoryRow(t cli.Table, name string, m events.Memory) {
	var cells []string
	for _, n := range []int64{m.Weights, m.Gradients, m.Optimizer, m.Activations, m.Snapshot, m.Total()} {
		cells = append(cells, system.Bytes(n))
	}
	t.Row(name, cells...)
}

// replicasOf says how many ranks hold the same experts.
func replicasOf(n int) string {
	if n == 1 {
		return "without replicas"
	}
	return fmt.Sprintf("with %d replicas", n)
}

// denseCopies says how often the dense weights exist.
func denseCopies(hosts int, fsdp bool) string {
	switch {
	case hosts == 1:
		return "one copy for all ranks"
	case fsdp:
		return "a part per host"
	}
	return "a copy per host"
}

// share formats the reciprocal of a whole number.
func share(part float64) string {
	if part == 1 {
		return "all"
	}
	return fmt.Sprintf("1/%.0f", 1/part)
}

// rankList lists ranks, the first ones of many.
func rankList(ranks []int) string {
	const most = 8
	var words []string
	for _, r := range ranks[:min(len(ranks), most)] {
		words = append(words, fmt.Sprint(r))
	}
	if len(ranks) > most {
		words = append(words, "...")
	}
	return strings.Join(words, " ")
}
