package inspecting

// inspect --layouts: what each parallel layout of some ranks needs and moves, from the
// configuration alone.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// LayoutCosts is what a layout needs and moves. Memory is per rank, movements are per rank and
// step.
type LayoutCosts struct {
	ID string `json:"layout"`
	mesh.Layout
	Inner     int                 `json:"efsdp"`
	Default   bool                `json:"default"`
	Hosts     int                 `json:"hosts"`
	Experts   int                 `json:"experts_per_rank"` // of each layer
	Copies    int                 `json:"expert_replicas"`
	Memory    MemorySizes         `json:"memory"`          // in a pipeline, of the rank that needs most
	Places    []MemorySizes       `json:"memory_by_place"` // of the ranks of each place in the pipeline
	AllMemory int64               `json:"memory_of_all_ranks"`
	Moved     estimate.Moved      `json:"moved"` // the sum of the movements
	Movements []estimate.Movement `json:"movements"`
}

// listLayouts prints the layouts of the ranks.
func (f *inspectFlags) listLayouts(env cli.Env, cfg config.Config) error {
	if f.hosts < 1 || f.ranks%f.hosts != 0 {
		return fmt.Errorf("hosts is %d: give a divisor of the %s, so that all hosts have the same number", f.hosts, report.Plural(f.ranks, "rank"))
	}
	layouts, notes, err := f.layoutsOf(cfg)
	if err != nil {
		return err
	}
	var all []LayoutCosts
	for _, l := range layouts {
		costs, err := newLayoutCosts(cfg, l, f.hosts)
		if err != nil && len(layouts) == 1 {
			return err
		} else if err != nil {
			notes = append(notes, "not listed: "+err.Error())
			continue
		}
		all = append(all, costs)
	}
	if len(all) == 0 {
		return fmt.Errorf("no layout of %s fits: %s", report.Plural(f.ranks, "rank"), slices.Concat(notes, []string{"cp · tp · pp must divide them"})[0])
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		for _, l := range all {
			if err := encoder.Encode(l); err != nil {
				return err
			}
		}
	} else {
		f.printLayouts(env, cfg, all)
	}
	for _, note := range notes {
		fmt.Fprintf(env.ErrOut, "NOTE: %s\n", note)
	}
	return nil
}

// layoutsOf returns the layout that flags choose, or all legal ones with the cp and the tp of the
// configuration, and its pp if a flag gives it.
func (f *inspectFlags) layoutsOf(cfg config.Config) (all []mesh.Layout, notes []string, err error) {
	of := mesh.Model{Batch: cfg.Batch, Experts: cfg.RoutedExperts()}
	if cli.Gives(*f.given, "DPReplicate", "DPShard", "EP") {
		d := mesh.Degrees{
			PP:          cfg.PP,
			DPReplicate: cfg.DPReplicate,
			DPShard:     cfg.DPShard,
			CP:          cfg.CP,
			TP:          cfg.TP,
			EP:          cfg.EP,
		}
		one, err := mesh.Resolve(f.ranks, d, of)
		return []mesh.Layout{one}, nil, err
	}
	if _, err := mesh.Resolve(f.ranks, mesh.Degrees{}, of); err != nil {
		notes = append(notes, fmt.Sprintf("the default layout, %v, is not legal: %v", mesh.Default(f.ranks), err))
	}
	for pp := 1; pp <= f.ranks; pp++ {
		if f.ranks%pp == 0 && (pp == cfg.PP || !cli.Gives(*f.given, "PP")) {
			all = append(all, mesh.Sharing(f.ranks, pp, max(cfg.CP, 1), max(cfg.TP, 1), of.Experts)...)
		}
	}
	return all, notes, nil
}

func newLayoutCosts(cfg config.Config, l mesh.Layout, hosts int) (c LayoutCosts, err error) {
	on := estimate.Host{Ranks: l.World / hosts}
	cfg.SetLayout(l)
	if err := cmp.Or(cfg.CheckContext(), cfg.OnHosts(l.World, on.FirstRanks(l.World))); err != nil {
		return c, fmt.Errorf("%v: %w", l, err)
	}
	if _, err := estimate.Holdings(cfg, l.World); err != nil {
		return c, fmt.Errorf("%v: %w", l, err)
	}
	c = LayoutCosts{
		ID:      l.Name(),
		Layout:  l,
		Inner:   l.EFSDP(),
		Default: l == mesh.Default(l.World),
		Hosts:   hosts,
		Copies:  l.Replicas(),
	}
	for _, m := range estimate.RankMemory(cfg, l, hosts) {
		c.Places = append(c.Places, MemorySizes{m, m.Total()})
		c.AllMemory += int64(l.StageRanks()) * m.Total()
	}
	c.Memory = slices.MaxFunc(c.Places, func(a, b MemorySizes) int { return cmp.Compare(a.All, b.All) })
	c.Experts = cfg.RoutedExperts() / l.EP
	c.Movements, err = estimate.LayoutTraffic(cfg, l, hosts)
	for _, m := range c.Movements {
		c.Moved = c.Moved.Plus(m.Moved)
	}
	return c, err
}

// movedColumns are the columns of the table for bytes that move, each with the movements that it
// sums.
var movedColumns = []struct {
	title string
	has   func(m estimate.Movement) bool
}{
	{"tokens", func(m estimate.Movement) bool {
		return m.Kind == collective.KindDispatch || m.Kind == collective.KindCombine || m.Kind == collective.KindAllGather
	}},
	{"gradients", func(m estimate.Movement) bool { return m.Gradients() }},
	{"weights", func(m estimate.Movement) bool { return m.Kind == collective.KindAllGatherV }},
	{"all", func(estimate.Movement) bool { return true }},
}

// Sum returns the bytes of some movements.
func (c LayoutCosts) Sum(has func(estimate.Movement) bool) (sum estimate.Moved) {
	for _, m := range c.Movements {
		if has(m) {
			sum = sum.Plus(m.Moved)
		}
	}
	return sum
}

// printLayouts prints a line per layout.
func (f *inspectFlags) printLayouts(env cli.Env, cfg config.Config, all []LayoutCosts) {
	fmt.Fprintf(env.Out, "%s, %s, on %s of %s; steps of %s of %d tokens\n", cfg.Flavor, cfg.Precision, report.Plural(f.ranks, "rank"), report.Plural(f.hosts, "host"),
		report.Plural(cfg.Batch, "sequence"), cfg.Seq)
	columns := []string{"experts", "memory", "of all ranks"}
	for _, c := range movedColumns {
		columns = append(columns, c.title)
	}
	table := cli.NewTable(env.Out, "layout", append(columns, "network")...)
	bytes := func(n float64) string { return system.Bytes(int64(n)) }
	for _, c := range all {
		name := "  " + c.ID
		if c.Default {
			name = "* " + c.ID
		}
		cells := []string{fmt.Sprint(c.Experts), system.Bytes(c.Memory.All), system.Bytes(c.AllMemory)}
		for _, column := range movedColumns {
			cells = append(cells, bytes(c.Sum(column.has).Memory))
		}
		table.Row(name, append(cells, bytes(c.Moved.Network))...)
	}
	last := all[len(all)-1]
	fmt.Fprintf(env.Out, "  %s: %v; *: the default; experts: of each layer, on a rank; memory: of the rank that needs most\n", last.ID, last.Layout)
	fmt.Fprintln(env.Out, "  then bytes that a rank moves per step, the mean of all ranks: tokens to experts and back, gradients, updated weights,")
	fmt.Fprintln(env.Out, "  and all; network: those that leave its host, for uniform routing (--hosts)")
}
