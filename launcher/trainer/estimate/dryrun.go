package estimate

// What a rank holds and moves, counted by a dry run of its code: see [moe.DryRun].

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// dryRank counts for one rank of a layout.
type dryRank struct {
	config.Config // with the layout of the ranks of a stage
	layout        mesh.Layout
	hosts         int
	rank          int // of the layout
	// of all ranks of a pipeline on several hosts, which meet at the end of a step, and the rank's
	// place in it
	whole           mesh.Layout
	allHosts, place int
	precision       moe.Precision
	options         ep.Options
	recompute       moe.Recompute
	rule            optim.Rule
}

// NewDryRank returns an error for settings that nothing can be counted for. l is the layout of the
// ranks of a stage.
func NewDryRank(c config.Config, l mesh.Layout, hosts, rank int) (d dryRank, err error) {
	if e := c.RoutedExperts(); e > 0 {
		for e%l.EP != 0 { // such a layout is refused: count a similar one
			l.EP--
			for l.Shards()%l.EP != 0 {
				l.EP--
			}
		}
	}
	l.DPReplicate, l.DPShard = 1, l.World/l.Sharers() // the same ranks hold the same
	c.SetLayout(l)
	d = dryRank{Config: c, layout: l, hosts: hosts, rank: rank, rule: Rule(c)}
	if err := countable(c, l); err != nil {
		return d, err
	}
	var recipe, exchange error
	d.precision, recipe = c.Recipe()
	d.options, exchange = c.Exchange()
	d.recompute, err = moe.ParseRecompute(c.Recompute)
	return d, errors.Join(recipe, exchange, err)
}

// errAbsurd says that a model or a batch is beyond any machine.
var errAbsurd = errors.New("no machine has room for it")

// countable returns an error if a dry run would take too long, or its sizes would overflow.
func countable(c config.Config, l mesh.Layout) error {
	m, tokens := c.Model, float64(max(c.RankBatch(l.World), 1))*float64(c.Seq)
	layers := float64(m.Layers + m.MTPLayers)
	weights := layers * float64(m.Dim) * (float64(m.Experts+m.SharedExperts)*3*float64(m.ExpertInter) + 3*float64(m.DenseInter) + 4*float64(m.Heads)*float64(m.KeyDim()+m.ValueDim))
	weights += 2 * float64(m.Vocab) * float64(m.Dim)
	const most = 1 << 50
	if weights > most || tokens*float64(max(m.TopK, 1)) > 1<<28 || tokens*float64(m.Dim+m.Heads*m.KeyDim()) > most ||
		layers*float64(m.Experts) > 1<<20 ||
		l.World > 1<<16 {
		return errAbsurd
	}
	return nil
}

// mesh returns the communicators of the rank, which have counted nothing.
func (d dryRank) mesh() moe.Mesh {
	m := moe.DryMesh(d.layout, d.hosts, d.rank)
	m.FSDP, m.Cut = d.FSDP, optim.Cut(d.rule)
	return m
}

// stageCount is what passes of a stage hold and move.
type stageCount struct {
	Pass  moe.PassMemory
	Split float64 // bytes that a pass saves whose weight gradients are computed apart
	moved movements
}

// passSizes returns the sequences of each pass of a step on a rank: one pass at least.
func (d dryRank) passSizes() []int {
	if sizes := d.Config.PassSizes(d.layout.World); len(sizes) > 0 {
		return sizes
	}
	return []int{1}
}

// passes counts the passes of a step through a stage. It leaves out passes that repeat earlier
// ones.
func (d dryRank) passes(stage moe.Stage) (n stageCount, err error) {
	passes := d.passSizes()
	all, some, micro := 0, 0, passes[0]
	for _, sequences := range passes {
		all += sequences
	}
	const longest = 256 // no run is known whose experts wait for rows of more passes
	most := min(max(d.Model.WgradPasses(d.precision, micro*d.Seq*d.layout.Batch())+1, 2), longest)
	passes = passes[:min(most, len(passes))]
	last := passes[len(passes)-1]
	for _, sequences := range passes[:len(passes)-1] {
		some += sequences
	}
	for _, split := range []bool{false, true} {
		if split && stage == d.Model.Whole() {
			break
		}
		run, err := moe.NewDryRun(d.mesh(), d.Model, d.precision, d.Seq, d.options, stage, true)
		if err != nil {
			return n, err
		}
		run.Recompute, run.ChainPasses = d.recompute, d.Config.ChainPasses
		if d.Optimizer.QKClip > 0 {
			run.RecordScores()
		}
		beforeLast := func() {
			if !split && some > 0 {
				n.moved.add(run.Mesh(), float64(all-last)/float64(some)-1)
			}
		}
		if err := run.Step(passes, d.Seq, split, beforeLast); err != nil {
			return n, err
		}
		if m := run.PassMemory(d.Seq); split {
			n.Split = m.AllSaved()
		} else {
			n.Pass = m
			n.moved.add(run.Mesh(), 1)
		}
	}
	return n, nil
}

// stateCount is what a rank holds of its stages, besides activations, and what an update moves.
type stateCount struct {
	parts map[moe.PartKey]events.Memory
	moved movements
}

// state counts the state of a rank with some stages.
func (d dryRank) state(stages []moe.Stage) (n stateCount, err error) {
	n.parts = map[moe.PartKey]events.Memory{}
	add := func(part moe.PartKey, m events.Memory) { n.parts[part] = n.parts[part].Plus(m) }
	on, ex := d.mesh(), tensor.NewDryExec()
	var runs []*moe.DryRun
	var groups []*moe.Group
	for _, stage := range stages {
		run, err := moe.NewDryRun(on, d.Model, d.precision, d.Seq, d.options, stage, false)
		if err != nil {
			return n, err
		}
		run.ChainPasses = d.Config.ChainPasses
		runs, groups = append(runs, run), append(groups, run.Groups...)
	}
	all := on.World
	if d.allHosts > 0 {
		all = moe.DryWorld(d.whole.World, d.allHosts, d.place*d.layout.World+d.rank)
	}
	opt := optim.New(ex, groups, all, d.rule, tensor.NewDry(tensor.UINT8, optim.StateBytes(d.rule, groups)).Bytes())
	for _, run := range runs {
		if err := run.SumPasses(d.passSizes()); err != nil {
			return n, err
		}
	}
	if err := d.update(ex, all, opt); err != nil {
		return n, err
	}
	n.moved.add(on, 1)
	if all != on.World {
		n.moved.addComm(all, "all stages", 1)
	}
	held := map[moe.PartKey][2]float64{}
	for _, run := range runs {
		run.Held(func(part moe.PartKey, weights, gradients float64) {
			held[part] = [2]float64{held[part][0] + weights, held[part][1] + gradients}
		})
	}
	for part, bytes := range held {
		add(part, events.Memory{Weights: int64(math.Ceil(bytes[0])), Gradients: int64(math.Ceil(bytes[1]))})
	}
	padding := int64(optim.StateBytes(d.rule, groups))
	state := func(part moe.PartKey, bytes int64) {
		m := events.Memory{Optimizer: bytes}
		if d.Copies() {
			m.Snapshot = bytes
		}
		add(part, m)
	}
	optim.Held(d.rule, groups, func(p *moe.Param, bytes int) {
		state(p.Part, int64(bytes))
		padding -= int64(bytes)
	})
	state(groups[len(groups)-1].Params[0].Part, padding)
	return n, nil
}

// update makes the collectives at the end of a step.
func (d dryRank) update(ex *tensor.Exec, c *collective.Comm, opt *optim.Optimizer) error {
	if err := opt.DryStep(); err != nil {
		return err
	}
	if _, err := state.NewBalancer(c, ex, nil, d.Model).Balance(false); err != nil {
		return err
	}
	_, err := state.Totals{}.Sum(ex, c)
	return err
}

// dryCounts are kept, because a configuration is estimated many times.
var dryCounts struct {
	sync.Mutex
	known map[string]any
}

// known returns the count with a key, which count makes if it is not known.
func known[T any](key string, count func() (T, error)) (n T, err error) {
	type counted struct {
		n   T
		err error
	}
	dryCounts.Lock() // until it is counted: ranks that are goroutines ask at the same time
	defer dryCounts.Unlock()
	if c, ok := dryCounts.known[key].(counted); ok {
		return c.n, c.err
	}
	n, err = count()
	if dryCounts.known == nil || len(dryCounts.known) > 1<<12 {
		dryCounts.known = map[string]any{}
	}
	dryCounts.known[key] = counted{n, err}
	return n, err
}

// keyOf names a configuration without what differs most and no count depends on.
func keyOf(c config.Config) string {
	c.Steps, c.Out, c.Data, c.SamplePrompt = 0, "", nil, ""
	return fmt.Sprintf("%#v", c)
}

// key names everything that the counts of some stages depend on.
func (d dryRank) key(what string, stages []moe.Stage) string {
	key := fmt.Sprintf("%s %s %v %d %d %v %d %d", what, keyOf(d.Config), d.layout, d.hosts, d.rank, d.whole, d.allHosts, d.place)
	p := d.precision
	for _, s := range stages {
		key += fmt.Sprint(s.First % d.layout.Sharers()) // ranks take turns with the gradient of a router
		if p.PlainFirst == 0 && p.PlainLast == 0 && p.PlainTail == 0 && len(p.Layers) == 0 {
			// Stages with equally many layers of each kind hold and move the same.
			dense := max(min(s.End, d.Model.DenseLayers)-s.First, 0)
			s.First, s.End = dense, s.End-s.First
		}
		key += fmt.Sprint(s)
	}
	return key
}

func (d dryRank) KnownPasses(stage moe.Stage) (stageCount, error) {
	return known(d.key("passes", []moe.Stage{stage}), func() (stageCount, error) { return d.passes(stage) })
}

func (d dryRank) knownState(stages map[int]moe.Stage) (stateCount, error) {
	var list []moe.Stage
	for _, number := range slices.Sorted(maps.Keys(stages)) {
		list = append(list, stages[number])
	}
	return known(d.key("state", list), func() (stateCount, error) { return d.state(list) })
}
