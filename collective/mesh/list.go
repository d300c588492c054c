package mesh

// All layouts of a number of ranks, and the one that is nearest to given degrees.

// All lists the legal layouts of a number of ranks in a single stage for a model with this number
// of routed experts. The order is by dp_replicate, ascending, and then by ep, descending. So
// [Default] comes first if it is legal. Without experts ep makes no difference, and each dense mesh
// is listed once.
func All(world, experts int) []Layout { return Pipelines(world, 1, experts) }

// Pipelines is All for pipelines of pp ranks. There are none unless pp divides the ranks.
func Pipelines(world, pp, experts int) []Layout { return Contexts(world, pp, 1, experts) }

// Contexts is Pipelines for layouts in which cp ranks share each sequence. There are none unless cp
// divides the ranks.
func Contexts(world, pp, cp, experts int) []Layout {
	if world%(pp*cp) != 0 {
		return nil
	}
	all := legal(world, pp, cp, experts)
	if experts > 0 {
		return all
	}
	var once []Layout
	for _, l := range all {
		if l.EP == l.Shards() {
			once = append(once, l)
		}
	}
	return once
}

// legal lists the layouts of this many stages and ranks per sequence, with all values of ep that
// the experts allow. Without experts that is every divisor of dp_shard · cp.
func legal(world, pp, cp, experts int) (all []Layout) {
	stage := world / pp / cp
	for replicate := 1; replicate <= stage; replicate++ {
		if stage%replicate != 0 {
			continue
		}
		shard := stage / replicate
		for ep := shard * cp; ep >= 1; ep-- {
			l := Layout{World: world, PP: pp, DPReplicate: replicate, DPShard: shard, EP: ep}
			if cp > 1 {
				l.CP = cp
			}
			if l.divides(Model{Experts: experts}) == nil {
				all = append(all, l)
			}
		}
	}
	return all
}

// nearest returns the legal layout with the least distance from degrees, and of several the first.
// A distance is the product of the factors by which the degrees that were given change. Without a
// pp, there is one stage, and without a cp, no sequence is shared.
func nearest(world int, d Degrees, experts int) (best Layout) {
	least, stages, contexts := 0.0, 1, 1
	if d.PP > 1 {
		stages = world
	}
	if d.CP > 1 {
		contexts = world
	}
	for pp := 1; pp <= stages; pp++ {
		for cp := 1; cp <= contexts; cp *= 2 {
			if world%(pp*cp) != 0 {
				continue
			}
			for _, l := range legal(world, pp, cp, experts) {
				distance := factor(d.PP, l.PP) * factor(d.DPReplicate, l.DPReplicate) * factor(d.DPShard, l.DPShard) * factor(d.CP, l.Context()) * factor(d.EP, l.EP)
				if best.World == 0 || distance < least {
					best, least = l, distance
				}
			}
		}
	}
	return best
}

// factor returns the ratio of two degrees, at least 1. A degree below 1 was not given.
func factor(given, legal int) float64 {
	if given < 1 {
		return 1
	}
	return float64(max(given, legal)) / float64(min(given, legal))
}
