package projection

// Layouts: all that divide evenly, those that fit, and the Pareto-optimal ones.

import (
	"cmp"
	"iter"
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

// Point is one layout of a sweep.
type Point struct {
	Run    Run
	Tokens float64 // per second and GPU
	Memory float64 // GB on the fullest GPU
	Best   bool    // no other layout is faster with no more memory
}

// Sweep projects layouts of the run's GPUs, at most most of those that divide evenly (0: all). It
// returns those that fit in memory, fastest first, and the number of layouts tried.
func Sweep(r Run, most int) (fit []Point, seen int, err error) {
	if err := r.Check(); err != nil {
		return nil, 0, err
	}
	m, err := r.model()
	if err != nil {
		return nil, 0, err
	}
	h, err := r.hardware()
	if err != nil {
		return nil, 0, err
	}
	set := Central()
	for l := range layouts(m, r) {
		if most > 0 && seen == most {
			break
		}
		seen++
		memory := l.memory(m).Total()
		if memory > h.Memory.Value {
			continue
		}
		tokens, err := throughput(l, set)
		if err != nil {
			return nil, seen, err
		}
		fit = append(fit, Point{Run: l, Tokens: tokens, Memory: memory})
	}
	slices.SortStableFunc(fit, func(a, b Point) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Memory, b.Memory))
	})
	least := h.Memory.Value + 1
	for i := range fit {
		if fit[i].Memory < least {
			least, fit[i].Best = fit[i].Memory, true
		}
	}
	return fit, seen, nil
}
