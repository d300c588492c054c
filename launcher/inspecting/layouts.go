package inspecting

// layouts: the parallel layouts of some ranks, and what each needs and moves, from the
// configuration alone.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"

	"spmoe/collective/mesh"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/running"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// layoutsFlags are the flags of layouts.
type layoutsFlags struct {
	inspectFlags
	hosts int
	pp    Degrees
	cp    Degrees
	tp    Degrees
}

// DefineLayouts defines the flags of layouts.
func DefineLayouts(fs *flag.FlagSet) cli.Action {
	f := &layoutsFlags{pp: One(mesh.PP), cp: One(mesh.CP), tp: One(mesh.TP)}
	running.DefineRankCount(fs, &f.ranks, 8)
	f.define(fs, append([]string{"flavor", "recompute", "fsdp", "ep-dispatch", "ep-combine-backward"}, stageSizeFlags...))
	fs.Lookup("json").Usage = "print JSON, one layout per line"
	fs.Var(&f.pp, "pp", "`N,...` ranks of a pipeline, such as 2,4; all: pipelines of every length, and none")
	fs.Var(&f.cp, "cp", "`N,...` ranks that share each sequence, such as 2,4; all: every power of two, and none")
	fs.Var(&f.tp, "tp", "`N,...` ranks that share the products of dense layers, such as 2,4; all: every power of two, and none")
	fs.IntVar(&f.hosts, "hosts", 1, "`N` hosts with equal numbers of ranks")
	return cli.NoArguments(f.run)
}

func (f *layoutsFlags) run(_ context.Context, env cli.Env) error {
	cfg, err := f.configure(nil)
	if err != nil {
		return err
	}
	if err := f.check(cfg); err != nil {
		return err
	}
	if f.hosts < 1 || f.ranks%f.hosts != 0 {
		return fmt.Errorf("hosts is %d: give a divisor of the %s, so that all hosts have the same number", f.hosts, report.Plural(f.ranks, "rank"))
	}
	list, err := f.costs(cfg)
	if err != nil {
		return err
	}
	if f.json {
		encoder := json.NewEncoder(env.Out)
		for _, l := range list.layouts {
			if err := encoder.Encode(l); err != nil {
				return err
			}
		}
		for _, note := range list.notes {
			fmt.Fprintf(env.ErrOut, "NOTE: %s\n", note)
		}
		return nil
	}
	list.print(env.Out)
	return nil
}

// layoutList is what layouts prints.
type layoutList struct {
	cfg          config.Config
	ranks, hosts int
	chosen       bool // by flags: one layout
	layouts      []LayoutCosts
	notes        []string
}

// costs returns the chosen layout, or all legal ones.
func (f *layoutsFlags) costs(cfg config.Config) (list layoutList, err error) {
	list = layoutList{cfg: cfg, ranks: f.ranks, hosts: f.hosts, chosen: cli.Gives(*f.given, "DPReplicate", "DPShard", "EP")}
	of := mesh.Model{Batch: cfg.Batch}
	if cfg.Model.MoELayers() > 0 {
		of.Experts = cfg.Model.Experts
	}
	layouts, err := Layouts(f.ranks, of.Experts, &f.pp, &f.cp, &f.tp)
	if err != nil {
		return list, err
	}
	if list.chosen {
		one, err := f.one(cfg, of)
		if err != nil {
			return list, err
		}
		costs, err := newLayoutCosts(cfg, one, f.hosts)
		list.layouts = []LayoutCosts{costs}
		return list, err
	}
	var broken *mesh.Error
	if _, err := mesh.Resolve(f.ranks, mesh.Degrees{}, of); errors.As(err, &broken) {
		list.notes = append(list.notes, fmt.Sprintf("the default layout, %v, is not legal: %v", mesh.Default(f.ranks), err))
	}
	for _, one := range layouts {
		costs, err := newLayoutCosts(cfg, one, f.hosts)
		if err != nil {
			list.notes = append(list.notes, "not listed: "+err.Error())
			continue
		}
		list.layouts = append(list.layouts, costs)
	}
	if len(list.layouts) == 0 {
		return list, fmt.Errorf("no layout fits: %s", list.notes[len(list.notes)-1])
	}
	return list, nil
}

// one returns the layout that flags choose.
func (f *layoutsFlags) one(cfg config.Config, of mesh.Model) (mesh.Layout, error) {
	for _, d := range [...]*Degrees{&f.pp, &f.cp, &f.tp} {
		if len(d.List) != 1 {
			return mesh.Layout{}, fmt.Errorf("%s is %v: give one number with --ep, dp_replicate or dp_shard", d.Axis, d)
		}
	}
	return mesh.Resolve(f.ranks, mesh.Degrees{PP: f.pp.List[0], CP: f.cp.List[0], TP: f.tp.List[0], DPReplicate: cfg.DPReplicate, DPShard: cfg.DPShard, EP: cfg.EP}, of)
}

// LayoutCosts is what a layout needs and moves. Memory is per rank, movements are per rank and
// step.
type LayoutCosts struct {
	ID string `json:"layout"`
	mesh.Layout
	Inner       int     `json:"efsdp"`
	Default     bool    `json:"default"`
	Hosts       int     `json:"hosts"`
	Experts     int     `json:"experts_per_rank"` // of each layer
	Copies      int     `json:"expert_replicas"`
	DenseState  float64 `json:"dense_state_share"`  // of the optimizer's state of the dense weights
	ExpertState float64 `json:"expert_state_share"` // of that of the rank's experts

	Memory    MemorySizes         `json:"memory"`          // in a pipeline, of the rank that needs most
	Places    []MemorySizes       `json:"memory_by_place"` // of the ranks of each place in the pipeline
	AllMemory int64               `json:"memory_of_all_ranks"`
	Moved     estimate.Moved      `json:"moved"` // the sum of the movements
	Movements []estimate.Movement `json:"movements"`
}

func newLayoutCosts(cfg config.Config, l mesh.Layout, hosts int) (c LayoutCosts, err error) {
	if l.Sharers() > 1 {
		cfg.SetLayout(l)
		on := estimate.Host{Ranks: l.World / hosts}
		if err := cmp.Or(cfg.CheckContext(), cfg.OnHosts(l.World, on.FirstRanks(l.World))); err != nil {
			return c, fmt.Errorf("%v: %w", l, err)
		}
	}
	var all int64
	for _, m := range estimate.RankMemory(cfg, l, hosts) {
		c.Places = append(c.Places, MemorySizes{m, m.Total()})
		all += int64(l.StageRanks()) * m.Total()
	}
	memory := slices.MaxFunc(c.Places, func(a, b MemorySizes) int { return cmp.Compare(a.All, b.All) })
	c = LayoutCosts{Places: c.Places,
		ID: l.Name(), Layout: l, Inner: l.EFSDP(), Default: l == mesh.Default(l.World), Hosts: hosts, Copies: l.Replicas(),
		DenseState: 1 / float64(l.StageRanks()), ExpertState: 1 / float64(l.Replicas()),
		Memory: memory, AllMemory: all,
	}
	if cfg.Model.MoELayers() > 0 {
		c.Experts = cfg.Model.Experts / l.EP
	}
	c.Movements, err = estimate.LayoutTraffic(cfg, l, hosts)
	for _, m := range c.Movements {
		c.Moved = c.Moved.Plus(m.Moved)
	}
	return c, err
}
