package pipe

// What a rank holds while its list runs.

import "spmoe/collective/pipeline"

// InFlight returns the most passes whose activations a rank holds at once. If its list has all
// weight gradients of a stage in the order of the parts, that is what the schedule says. Otherwise
// passes wait for their turn.
func (p *Plan) InFlight(rank int) int {
	return int(p.Held(rank, func(int, bool) float64 { return 1 }))
}

// Held returns the bytes of the arenas of a rank's passes. A pass takes the arena that was left
// last, and enlarges it if need be. bytes returns what a pass of a stage saves: in its forward pass
// or, split, until its weight gradients are computed separately.
func (p *Plan) Held(rank int, bytes func(stage int, split bool) float64) (sum float64) {
	h := holder{arenas: map[pass]int{}, waiting: map[pass]bool{}, next: map[int]int{}}
	for _, slot := range p.Schedule.Ranks[rank] {
		for _, a := range slot {
			at := pass{a.Stage, p.parts[a.Microbatch]}
			switch a.Kind {
			case pipeline.Forward:
				h.begin(at, bytes(a.Stage, false))
			case pipeline.InputGrad:
				h.enlarge(at, bytes(a.Stage, true))
			case pipeline.Backward:
				if at.microbatch != h.next[a.Stage] {
					h.enlarge(at, bytes(a.Stage, true))
				}
				h.end(at)
			case pipeline.WeightGrad:
				h.end(at)
			}
		}
	}
	for _, size := range h.sizes {
		sum += size
	}
	return sum
}

// holder follows the arenas of a rank.
type holder struct {
	sizes   []float64    // of all arenas
	idle    []int        // arenas
	arenas  map[pass]int // of passes in flight
	waiting map[pass]bool
	next    map[int]int // the micro-batch of a stage whose turn it is to end
}

func (h *holder) begin(at pass, bytes float64) {
	if n := len(h.idle); n > 0 {
		h.arenas[at], h.idle = h.idle[n-1], h.idle[:n-1]
	} else {
		h.arenas[at], h.sizes = len(h.sizes), append(h.sizes, 0)
	}
	h.enlarge(at, bytes)
}

func (h *holder) enlarge(at pass, bytes float64) {
	size := &h.sizes[h.arenas[at]]
	*size = max(*size, bytes)
}

// end frees the arenas of the passes whose turn it is.
func (h *holder) end(at pass) {
	for h.waiting[at] = true; h.waiting[pass{at.stage, h.next[at.stage]}]; h.next[at.stage]++ {
		h.idle = append(h.idle, h.arenas[pass{at.stage, h.next[at.stage]}])
	}
}
