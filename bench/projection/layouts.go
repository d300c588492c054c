package projection

// Layouts that divide evenly, and the one nearest to a run that fits.

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

// layouts yields every layout of the run's GPUs that divides evenly.
func layouts(m Model, r Run) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		l := r
		for _, l.TP = range []int{1, 2, 4, 8, 16} {
			for l.PP = 1; l.PP <= 32; l.PP *= 2 {
				for _, l.VP = range []int{1, 2, 4, 8, 16} {
					if l.PP == 1 && l.VP > 1 {
						continue
					}
					for l.EP = 1; l.EP <= m.Experts; l.EP++ {
						for l.MicroBatch = 1; l.MicroBatch <= 16; l.MicroBatch *= 2 {
							if m.Experts%l.EP != 0 || r.GPUs%l.EP != 0 {
								continue
							}
							l.Duplicate = min(max(r.Duplicate, 1), l.TP)
							if l.indivisible(m) != "" {
								continue
							}
							for _, l.Recompute = range Recomputes() {
								if !yield(l) {
									return
								}
							}
						}
					}
				}
			}
		}
	}
}

// suggest returns an error that names the nearest layout that divides evenly and fits.
func (r Run) suggest(m Model, why string) error {
	near, ok := r.nearest(m)
	if !ok {
		return fmt.Errorf("%s, and no layout of %d GPUs does and fits: give another number of GPUs, or fewer --layers", why, r.GPUs)
	}
	return fmt.Errorf("%s; the nearest that does and fits: --tp %d --pp %d --vp %d --ep %d --micro-batch %d --recompute %s", why, near.TP, near.PP, near.VP, near.EP, near.MicroBatch, near.Recompute)
}

// nearest returns the layout, the fewest doublings away, that divides evenly and fits in memory.
func (r Run) nearest(m Model) (Run, bool) {
	h, err := r.hardware()
	if err != nil {
		return r, false
	}
	n := m.sizes()
	var fit []Run
	for l := range layouts(m, r) {
		if l.memoryOf(m, n).Total() <= h.Memory.Value {
			fit = append(fit, l)
		}
	}
	if len(fit) == 0 {
		return r, false
	}
	distance := func(l Run) (d float64) {
		for _, p := range [][2]int{{l.TP, r.TP}, {l.PP, r.PP}, {l.VP, r.VP}, {l.EP, r.EP}, {l.MicroBatch, r.MicroBatch}} {
			d += math.Abs(math.Log2(float64(p[0]) / float64(max(p[1], 1))))
		}
		return d + math.Abs(float64(slices.Index(Recomputes(), l.Recompute)-slices.Index(Recomputes(), r.Recompute)))
	}
	return slices.MinFunc(fit, func(a, b Run) int { return cmp.Compare(distance(a), distance(b)) }), true
}
