package guard

// The guard of the weights: a step must find the weights that the previous one left. It compares
// checksums taken after a step with those before the next update, and checksums of replicated
// weights with those of other ranks. Weights that have changed are published again from the master
// weights, and the step is computed again.

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Weights holds the checksums of a rank's weights after a step.
type Weights struct {
	Comm   *collective.Comm // all ranks
	Peers  *collective.Comm // the ranks with the same stages as this one
	Layout mesh.Layout      // of the peers
	Ex     *tensor.Exec
	State  *state.TrainState
	Alarms *state.Alarms
	Period int // steps between checks; 0: no checks

	Taken bool
	// Of each group, including codes, without weights that ranks share. Then of the selection
	// biases. Then of this rank's part of shared weights, again of each group.
	WeightSums []uint64
	biases     []float32 // a copy
	repairs    int       // repairs since the checksums were taken
}

// maxRepairs bounds the repairs of weights within a step.
const maxRepairs = 3

// Take computes the checksums of this rank's weights after a number of steps, if the next one is to
// be checked. The ranks must meet before that step: until then nothing tells a weight that has
// changed in memory from one that was published.
func (g *Weights) Take(steps int) {
	if g.Taken = config.Due(g.Period, steps); !g.Taken {
		return
	}
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	g.WeightSums, g.repairs = g.SumWeights(g.WeightSums[:0]), 0
	g.biases = g.State.Balancer.Biases(g.biases[:0])
}

// TakeBiases computes the checksum of this rank's selection biases, which move after the weights.
func (g *Weights) TakeBiases() {
	if !g.Taken {
		return
	}
	g.WeightSums[len(g.State.Groups())] = g.sumBiases()
	g.biases = g.State.Balancer.Biases(g.biases[:0])
}

// SumWeights appends the checksums of the working weights of each group, of the selection biases,
// and of this rank's part of the shared weights of each group.
func (g *Weights) SumWeights(sums []uint64) []uint64 {
	for _, group := range g.State.Groups() {
		var sum uint64
		for t := range group.OwnWeights {
			sum = state.AddSum(sum, g.Ex, t)
		}
		sums = append(sums, sum)
	}
	sums = append(sums, g.sumBiases())
	for _, group := range g.State.Groups() {
		var sum uint64
		for t := range group.SharedWeights {
			sum = state.AddSum(sum, g.Ex, t)
		}
		sums = append(sums, sum)
	}
	return sums
}

func (g *Weights) sumBiases() (sum uint64) {
	for _, route := range g.State.Balancer.Routings {
		sum = state.AddSum(sum, g.Ex, route.Bias)
	}
	return sum
}

// finding is what one rank has found, in the form that ranks exchange: the earlier checksums of its
// weights, followed by the present ones.
type finding []uint64

func (f finding) changed(i int) bool { return f[i] != f[len(f)/2+i] }

func (f finding) sums() []uint64 { return f[:len(f)/2] }

// Check compares this rank's weights with those after the previous step. repaired says that weights
// were published again, on all ranks: what was computed from them must be computed again. It is
// collective.
func (g *Weights) Check() (repaired bool, err error) {
	if !g.Taken {
		return false, nil
	}
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	all, err := g.gather()
	if err != nil {
		return false, fmt.Errorf("comparing checksums: %w", err)
	}
	what, err := g.share(g.changedWeights(all))
	if err != nil || len(what) == 0 {
		return false, err
	}
	if g.repairs++; g.repairs > maxRepairs {
		return false, fmt.Errorf("%s: they were published again %d times and changed again: this machine's memory is not reliable", strings.Join(what, "; "), maxRepairs)
	}
	g.Alarms.Raise("step %d: %s: they are published again", g.State.Progress.Step+1, strings.Join(what, "; "))
	return true, g.repair(all)
}

// gather returns the findings of all peers. It is collective.
func (g *Weights) gather() ([]finding, error) {
	n := 2 * len(g.WeightSums)
	mine := g.SumWeights(append(make(finding, 0, n), g.WeightSums...))
	flat, all := make([]uint64, n*g.Peers.Size()), make([]finding, g.Peers.Size())
	for i := range all {
		all[i] = flat[i*n:][:n]
	}
	return all, collective.AllGather(g.Peers, flat, mine)
}

// share returns what the ranks of all stages have found, once for each stage. It is collective.
func (g *Weights) share(what []string) (all []string, err error) {
	mine := ""
	if g.State.First {
		mine = strings.Join(what, "; ")
	}
	texts, err := state.GatherTexts(g.Comm, mine)
	if err != nil {
		return nil, fmt.Errorf("comparing checksums: %w", err)
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" }), nil
}

// changedWeights lists the weights that have changed by themselves, and those that differ between
// ranks, with the ranks.
func (g *Weights) changedWeights(all []finding) (what []string) {
	groups := g.State.Groups()
	for i, group := range groups {
		what = append(what, g.changes(all, i, group.Name, "weights")...)
		for _, ranks := range g.holders(group) {
			what = append(what, g.disagreements(all, i, group.Name, "weights", ranks)...)
		}
	}
	for i, shared := range groups {
		at := len(groups) + 1 + i
		what = append(what, g.changes(all, at, shared.Name, "weights")...)
		for _, ranks := range g.places(shared) {
			what = append(what, g.disagreements(all, at, shared.Name, "weights", ranks)...)
		}
	}
	what = append(what, g.changes(all, len(groups), "selection", "biases")...)
	return append(what, g.disagreements(all, len(groups), "selection", "biases", state.EveryRank(len(all)))...)
}

// changes names the peers whose numbers have changed: those with checksum i, of the given name and
// kind.
func (g *Weights) changes(all []finding, i int, name, kind string) (what []string) {
	for rank, f := range all {
		if f.changed(i) {
			what = append(what, fmt.Sprintf("%s %s of rank %d have changed in memory", name, kind, g.firstPeer()+rank))
		}
	}
	return what
}

// firstPeer returns the rank of the first peer among all ranks. Peers are neighbors.
func (g *Weights) firstPeer() int { return g.Comm.Rank() - g.Peers.Rank() }

// holders returns the sets of peers that each hold the same weights of a group for themselves.
func (g *Weights) holders(group *moe.Group) [][]int {
	switch {
	case group.Ranks == nil || group.Held() != nil:
		return nil
	case group.Experts:
		own, _ := g.replicas()
		return own
	}
	return [][]int{state.EveryRank(g.Layout.World)}
}

// replicas returns the sets of peers with the same experts: own, whose ranks have copies of their
// own, and shared, which have the same place on hosts that hold one copy each.
func (g *Weights) replicas() (own, shared [][]int) {
	for _, all := range g.Layout.Groups(mesh.DPReplicate, mesh.EFSDP) {
		var hosts [][]int
		for i, rank := range all {
			if i == 0 || g.Peers.HostOf(rank) != g.Peers.HostOf(all[i-1]) {
				hosts = append(hosts, nil)
			}
			hosts[len(hosts)-1] = append(hosts[len(hosts)-1], rank)
		}
		each := len(hosts[0])
		if uneven := slices.ContainsFunc(hosts, func(h []int) bool { return len(h) != each }); uneven || each == 1 {
			own = append(own, all)
			continue
		}
		for place := range each {
			var ranks []int
			for _, h := range hosts {
				ranks = append(ranks, h[place])
			}
			shared = append(shared, ranks)
		}
	}
	return own, shared
}

// places returns the sets of peers that have the same place on each host. Of a group that hosts
// hold once each, they check the same part.
func (g *Weights) places(group *moe.Group) (sets [][]int) {
	if group.Experts && group.Ranks != nil {
		_, shared := g.replicas()
		return shared
	}
	if group.Across == nil || group.Held() != nil {
		return nil
	}
	hosts := g.Peers.Hosts()
	for place := range hosts[0] {
		var ranks []int
		for _, host := range hosts {
			ranks = append(ranks, host[place])
		}
		sets = append(sets, ranks)
	}
	return sets
}

// disagreements names the peers in ranks whose numbers differ from those of the others: see
// changes.
func (g *Weights) disagreements(all []finding, i int, name, kind string, ranks []int) (what []string) {
	odd, _ := Minority(column(all, i, ranks))
	for _, at := range odd {
		what = append(what, fmt.Sprintf("%s %s of rank %d are not those of the other ranks", name, kind, g.firstPeer()+ranks[at]))
	}
	return what
}

// column returns checksum number i of some ranks.
func column(all []finding, i int, ranks []int) (sums []uint64) {
	for _, rank := range ranks {
		sums = append(sums, all[rank].sums()[i])
	}
	return sums
}

// Minority returns the ranks that differ from the majority, and the first rank of the majority.
// Without a majority, it returns all ranks.
func Minority(sums []uint64) (odd []int, source int) {
	counts := map[uint64]int{}
	for _, s := range sums {
		counts[s]++
	}
	for rank, s := range sums {
		if counts[s] > counts[sums[source]] {
			source = rank
		}
	}
	for rank, s := range sums {
		if s != sums[source] || 2*counts[s] <= len(sums) {
			odd = append(odd, rank)
		}
	}
	return odd, source
}

// repair restores all weights. Selection biases come from the copy, or from a rank of the majority.
// The others come from the master weights.
func (g *Weights) repair(all []finding) error {
	biases := len(g.State.Groups())
	if all[g.Peers.Rank()].changed(biases) {
		g.State.Balancer.SetBiases(g.biases)
	}
	known := g.WeightSums[biases] // the copy must match, or this is found again
	if odd, source := Minority(column(all, biases, state.EveryRank(len(all)))); len(odd) > 0 {
		if err := collective.Bcast(g.Peers, g.biases, source); err != nil {
			return fmt.Errorf("repairing selection biases: %w", err)
		}
		g.State.Balancer.SetBiases(g.biases)
		known = all[source].sums()[biases]
	}
	return g.publish(known)
}

// Republish publishes the weights again, changed or not: what has changed before its checksum was
// taken looks intact. It is collective.
func (g *Weights) Republish() error {
	if !g.Taken {
		return g.State.Optim.Publish()
	}
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	return g.publish(g.WeightSums[len(g.State.Groups())])
}

// publish publishes the weights from the master weights and takes their checksums. That of the
// selection biases is known.
func (g *Weights) publish(biases uint64) error {
	g.State.Optim.Verify() // the next report has the result
	if err := g.State.Optim.Publish(); err != nil {
		return err
	}
	g.WeightSums = g.SumWeights(g.WeightSums[:0])
	g.WeightSums[len(g.State.Groups())] = biases
	return nil
}
