package pipe

// What a rank holds while its list runs.

import "spmoe/collective/pipeline"

// Held returns the bytes of the arenas of a rank's passes. A pass takes the arena that was left
// last, and enlarges it if need be. bytes returns what a pass of a stage saves: in its forward pass
// or, split, until its weight gradients are computed separately.
func (p *Plan) Held(rank int, bytes func(stage int, split bool) float64) (sum float64) {
	var sizes []float64      // of all arenas
	var idle []int           // arenas
	arenas := map[pass]int{} // of passes in flight
	for _, slot := range p.Schedule.Ranks[rank] {
		for _, a := range slot {
			at := pass{a.Stage, a.Microbatch}
			switch a.Kind {
			case pipeline.Forward:
				if n := len(idle); n > 0 {
					arenas[at], idle = idle[n-1], idle[:n-1]
				} else {
					arenas[at], sizes = len(sizes), append(sizes, 0)
				}
				size := &sizes[arenas[at]]
				*size = max(*size, bytes(a.Stage, false))
			case pipeline.InputGrad:
				size := &sizes[arenas[at]]
				*size = max(*size, bytes(a.Stage, true))
			case pipeline.Backward, pipeline.WeightGrad:
				idle = append(idle, arenas[at])
			}
		}
	}
	for _, size := range sizes {
		sum += size
	}
	return sum
}
