package pipeline

// Formula is what has been published about a schedule, for stages of equal cost, F = I and
// B = I + W: the most time in which a rank does nothing, and the most passes in flight on a rank.
// The passes of the interleaved schedules are our count of their lists.
type Formula struct {
	Idle     float64
	InFlight int
}

// formulas are those of DualPipe's README and of the zero-bubble papers. With two stages per rank,
// a stage is half a rank's layers. DualPipeV's p ranks are PP/2.
var formulas = map[string]func(p, perRank int, c Costs) Formula{
	"1F1B": func(p, _ int, c Costs) Formula {
		return Formula{float64(p-1) * (c.F + c.full()), p}
	},
	"Interleaved1F1B": func(p, v int, c Costs) Formula {
		return Formula{float64(p-1) * (c.F + c.full()), (v+1)*p - 1}
	},
	"InterleavedZeroBubble": func(p, v int, c Costs) Formula {
		return Formula{float64(p-1) * (c.F + c.full() - 2*c.W), v * p}
	},
	"ZBVZeroBubble": func(p, _ int, c Costs) Formula {
		return Formula{float64(p-1) * c.F, 2 * p}
	},
	"DualPipeV": func(p, _ int, c Costs) Formula {
		return Formula{float64(p-1) * (c.pair() + c.full() - 3*c.W), 2*p + 1}
	},
}

// Formula returns what has been published about a schedule of the given name and number of stages.
// It returns false if that is nothing, or says nothing about these costs or so few micro-batches.
func (s *Schedule) Formula(c Costs) (f Formula, ok bool) {
	p := len(s.Ranks)
	of, ok := formulas[s.Name]
	if !ok || c.Stages != nil || c.F != c.I || c.full() != c.I+c.W || s.Stages%p != 0 || s.Microbatches < 2*p || s.Microbatches%p != 0 {
		return f, false
	}
	if s.Name == "ZBVZeroBubble" && c.I != c.W {
		return f, false
	}
	return of(p, s.Stages/p, c), true
}
