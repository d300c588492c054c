// Package hosts projects training onto CPU hosts in a network, from measurements of one host
// without it.
//
// A step is the measured step of one host plus the exchanges between hosts that nothing hides.
// Their bytes are counted, or expected for uniform routing; their times follow from a link's
// latency and bandwidth. docs/projection.md has the formulas, and [Recipe.Assumptions] lists what
// they leave out.
package hosts

import (
	"errors"
	"fmt"
	"math"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// Recipe is the training to project, with the measurements of one host and of the network.
type Recipe struct {
	Model     moe.Config
	Precision moe.Precision
	Ranks     int // per host
	Seq       int // tokens per sequence
	// sequences per step and host; with Strong, per step of all hosts together
	Batch int
	// maximum sequences per rank and pass; 0: all
	MicroBatch int
	// of the optimizer; nil: AdamW with FP32 moments
	Rule   optim.Rule
	Strong bool // strong scaling: all hosts share the same batch
	// maximum hosts of an expert-parallel group; 0: all that the experts and the router's groups
	// allow
	EPHosts int
	Wire    ep.Wire // for the rows that dispatch sends
	// share of every exchange of tokens that is hidden; nil: what the shared experts cover
	Hidden *float64
	FLOPS  float64 // per second of one host without a network, as moe.Module counts them
	Link   Link
	Memory float64 // bytes per host; 0: unknown
}

// Row is the projection onto a number of hosts.
type Row struct {
	Hosts           int      `json:"hosts"`
	EPHosts         int      `json:"ep_hosts"`          // of an expert-parallel group
	Replicas        int      `json:"replicas"`          // number of such groups
	Tokens          int      `json:"tokens"`            // per step, all hosts together
	Step            float64  `json:"step_s"`            // seconds
	Compute         float64  `json:"compute_s"`         // of Step, without the network
	Uneven          float64  `json:"uneven_s"`          // of Step: ranks wait for those with more products of replicas
	TokensPerSecond float64  `json:"tokens_per_s"`      // of all hosts
	Efficiency      float64  `json:"efficiency"`        // relative to this number of independent hosts
	Sent            float64  `json:"sent_bytes"`        // by each host per step, which receives the same
	Exposed         float64  `json:"exposed"`           // share of the step in which a host waits for its link
	Memory          float64  `json:"memory_bytes"`      // per host
	Fits            bool     `json:"fits"`              // in the memory of a host, if known
	Motions         []Motion `json:"motions,omitempty"` // the exchanges between hosts; nil for one host
}

// MostHosts is the maximum number of hosts.
const MostHosts = 1 << 16

// Project projects the recipe onto 1, 2, 4, 8 and so on up to most hosts, and most itself. With
// strong scaling it leaves out numbers of hosts whose ranks cannot share the batch evenly.
func Project(r Recipe, most int) ([]Row, error) {
	rows, err := r.rows(most)
	for i := range rows {
		row := &rows[i]
		row.Memory = r.memory(row.Hosts, row.EPHosts)
		row.Fits = r.Memory == 0 || row.Memory <= r.Memory
	}
	return rows, err
}

// rows is Project without memory.
func (r Recipe) rows(most int) ([]Row, error) {
	if most < 1 || most > MostHosts {
		return nil, fmt.Errorf("%d hosts: give 1 to %d", most, MostHosts)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	var rows []Row
	for n := 1; ; n = min(2*n, most) {
		if !r.Strong || r.Batch%(n*r.Ranks) == 0 {
			rows = append(rows, r.row(n))
		}
		if n == most {
			return rows, nil
		}
	}
}

func (r Recipe) row(hosts int) Row {
	group := r.groupOf(hosts)
	row := Row{Hosts: hosts, EPHosts: group, Replicas: hosts / group, Tokens: hosts * r.sequences(hosts) * r.Seq}
	row.Compute = float64(row.Tokens/hosts) / r.rate()
	row.Uneven = r.uneven(hosts, group)
	row.Step = row.Compute + row.Uneven
	row.Motions = r.motions(hosts, group)
	for _, m := range row.Motions {
		row.Step += m.Exposed()
		row.Sent += float64(m.Times) * m.Bytes
	}
	row.TokensPerSecond = float64(row.Tokens) / row.Step
	row.Efficiency = row.Compute / row.Step
	row.Exposed = 1 - (row.Compute+row.Uneven)/row.Step
	return row
}

// uneven returns the seconds per step that the rank with most experts computes gradients of weights
// longer than on one host. D replicas divide the e experts of a rank of each layer, whole, so one
// of them gets ceil(e/D), with the rows of all D. The two weights of an expert are for different
// ranks if there are enough; the first is two thirds of them.
func (r Recipe) uneven(hosts, group int) float64 {
	replicas, experts := hosts/group, r.Model.Experts/(group*r.Ranks)
	if replicas == 1 || r.Model.MoELayers() == 0 {
		return 0
	}
	wgrad := 0.0
	for _, m := range r.Model.Modules(r.Seq) {
		if m.Class == moe.Expert {
			wgrad += m.FLOPs.Wgrad
		}
	}
	most := float64((experts+replicas-1)/replicas*replicas) / float64(experts)
	if 2*experts <= replicas {
		most *= 2. / 3
	}
	return (most - 1) * wgrad * float64(r.sequences(hosts)*r.Seq) / r.FLOPS
}

// sequences returns the sequences of one host per step.
func (r Recipe) sequences(hosts int) int {
	if r.Strong {
		return r.Batch / hosts
	}
	return r.Batch
}

// pass returns the sequences per rank in one forward and backward pass, and the number of passes
// per step.
func (r Recipe) pass(hosts int) (sequences, times int) {
	each := r.sequences(hosts) / r.Ranks
	if r.MicroBatch == 0 || r.MicroBatch >= each {
		return each, 1
	}
	return r.MicroBatch, (each + r.MicroBatch - 1) / r.MicroBatch
}

// flops returns the FLOPs per token, including the MTP module's.
func (r Recipe) flops() (sum float64) {
	for _, m := range r.Model.Modules(r.Seq) {
		sum += m.FLOPs.Total()
	}
	return sum
}

// rate returns the tokens/s of one host without a network.
func (r Recipe) rate() float64 { return r.FLOPS / r.flops() }

// divides reports whether a group of hosts can hold the experts: in equal parts that do not cross
// the border of one of the router's groups unless they consist of whole groups.
func (r Recipe) divides(hosts int) bool {
	m := r.Model
	return hosts == 1 || m.Experts%(hosts*r.Ranks) == 0 && (m.Groups%hosts == 0 || hosts%m.Groups == 0)
}

// mostEP returns the maximum number of hosts of an expert-parallel group. It is at most the number
// of the router's groups, so that a token visits no more hosts than groups.
func (r Recipe) mostEP() int {
	if r.EPHosts > 0 {
		return r.EPHosts
	}
	if r.Model.MoELayers() == 0 {
		return 1
	}
	most := r.Model.Experts / r.Ranks
	if r.Model.Groups > 1 {
		most = min(most, r.Model.Groups)
	}
	for !r.divides(most) {
		most--
	}
	return most
}

// groupOf returns the number of hosts of an expert-parallel group for a total number of hosts: the
// largest that divides them.
func (r Recipe) groupOf(hosts int) int {
	n := min(r.mostEP(), hosts)
	for hosts%n != 0 || !r.divides(n) {
		n--
	}
	return n
}

// Check returns an error with every reason why the recipe cannot be projected.
func (r Recipe) Check() error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const mostSequences = 1 << 24
	must(r.Ranks >= 1 && r.Ranks <= collective.MaxRanks, "%d ranks of a host: give 1 to %d", r.Ranks, collective.MaxRanks)
	must(r.Batch >= 1 && r.Batch <= mostSequences, "batch is %d: give 1 to %d sequences", r.Batch, mostSequences)
	must(r.Seq >= 1 && r.Seq <= r.Model.MaxPositions, "seq is %d: give 1 to %d, the model's longest", r.Seq, r.Model.MaxPositions)
	must(r.MicroBatch >= 0 && r.MicroBatch <= mostSequences, "micro-batch is %d: give 0 (a rank's whole batch) to %d", r.MicroBatch, mostSequences)
	must(positive(r.FLOPS), "one host computes %g FLOP/s: give a positive number", r.FLOPS)
	must(r.Hidden == nil || *r.Hidden >= 0 && *r.Hidden <= 1, "the hidden share must be 0 to 1")
	must(r.Memory == 0 || positive(r.Memory), "the memory of a host is %g bytes: give a positive number, or 0 if it is not known", r.Memory)
	errs = append(errs, r.Link.check(), r.Model.Validate())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	must(r.Batch%r.Ranks == 0, "batch is %d: give a multiple of the %d ranks of a host, such as %d", r.Batch, r.Ranks, (r.Batch+r.Ranks-1)/r.Ranks*r.Ranks)
	if r.Model.MoELayers() > 0 {
		_, err := ep.NewLayout(r.Model.Experts, r.Ranks)
		errs = append(errs, err)
		must(err != nil || r.EPHosts == 0 || r.EPHosts > 0 && r.divides(r.EPHosts), "expert-parallel groups of %d hosts of %s cannot share %d experts in %d groups: give a number such as %d",
			r.EPHosts, ranks(r.Ranks), r.Model.Experts, r.Model.Groups, Recipe{Model: r.Model, Ranks: r.Ranks}.mostEP())
	} else {
		must(r.EPHosts <= 1, "expert-parallel groups of %d hosts, but the model has no experts: leave their size out", r.EPHosts)
	}
	return errors.Join(errs...)
}

func ranks(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
