package mesh

// All layouts of a number of ranks, and the one that is nearest to given degrees.

// Sharing lists the legal layouts of a number of ranks in pp stages, in which cp · tp ranks share
// each sequence, for a model with this number of routed experts. There are none unless pp · cp · tp
// divides the ranks. The order is by dp_replicate, ascending, and then by ep, descending. So
// [Default] comes first if it is legal. Without experts ep makes no difference, and each dense mesh
// is listed once.
func Sharing(world, pp, cp, tp, experts int) []Layout {
	if world%(pp*cp*tp) != 0 {
		return nil
	}
	all := legal(world, pp, cp, tp, experts)
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

// legal lists the layouts with these degrees and all values of ep that the experts allow. Without
// experts that is every divisor of dp_shard · cp · tp.
func legal(world, pp, cp, tp, experts int) (all []Layout) {
	stage := world / pp / cp / tp
	for replicate := 1; replicate <= stage; replicate++ {
		if stage%replicate != 0 {
			continue
		}
		shard := stage / replicate
		for ep := shard * cp * tp; ep >= 1; ep-- {
			l := Layout{World: world, PP: pp, DPReplicate: replicate, DPShard: shard, EP: ep}
			if cp > 1 {
				l.CP = cp
			}
			if tp > 1 {
				l.TP = tp
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
// pp, there is one stage, and without cp and tp, no sequence is shared.
func nearest(world int, d Degrees, experts int) (best Layout) {
	least, stages, contexts, tensors := 0.0, 1, 1, 1
	if d.PP > 1 {
		stages = world
	}
	if d.CP > 1 {
		contexts = world
	}
	if d.TP > 1 {
		tensors = world
	}
	for pp := 1; pp <= stages; pp++ {
		for cp := 1; cp <= contexts; cp *= 2 {
			for tp := 1; tp <= tensors; tp *= 2 {
				if world%(pp*cp*tp) != 0 {
					continue
				}
				for _, l := range legal(world, pp, cp, tp, experts) {
					if distance := d.distance(l); best.World == 0 || distance < least {
						best, least = l, distance
					}
				}
			}
		}
	}
	return best
}

// distance returns the product of the factors by which degrees change to those of a layout.
func (d Degrees) distance(l Layout) float64 {
	return factor(d.PP, l.PP) * factor(d.DPReplicate, l.DPReplicate) * factor(d.DPShard, l.DPShard) *
		factor(d.CP, l.Context()) * factor(d.TP, l.Tensor()) * factor(d.EP, l.EP)
}

// factor returns the ratio of two degrees, at least 1. A degree below 1 was not given.
func factor(given, legal int) float64 {
	if given < 1 {
		return 1
	}
	return float64(max(given, legal)) / float64(min(given, legal))
}
