package hosts

// The exchanges between hosts in a step, in messages and bytes, and their times.

import (
	"fmt"

	"spmoe/bench/projection"
	"spmoe/collective/ep"
	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor/exact"
)

// Link is a host's link: full duplex, and the same between any two hosts.
type Link struct {
	Bandwidth float64 `json:"bytes_per_s"` // in each direction
	Latency   float64 `json:"latency_s"`   // per message
}

func (l Link) check() error {
	if !positive(l.Bandwidth) || !(l.Latency == 0 || positive(l.Latency)) {
		return fmt.Errorf("a link has %g bytes per second and a latency of %g s: give a positive bandwidth, and a latency of 0 or more", l.Bandwidth, l.Latency)
	}
	return nil
}

// seconds returns the time for a host to send, and to receive the same amount simultaneously:
// messages·α + bytes·β, where 1/β is the bandwidth. Source: R. W. Hockney, Parallel Computing 20
// (1994); for direct exchanges between all, (p-1)·α + bytes·β: E. Chan et al., Concurrency and
// Computation 19 (2007).
func (l Link) seconds(messages int, bytes float64) float64 {
	return float64(messages)*l.Latency + bytes/l.Bandwidth
}

// Motion is one kind of exchange between hosts.
type Motion struct {
	Name  string `json:"name"`
	Times int    `json:"times"` // per step
	// that a rank sends each time, one after another, while the host's other ranks send theirs
	Messages int     `json:"messages"`
	Bytes    float64 `json:"bytes"`   // that a host sends each time, all ranks together
	Seconds  float64 `json:"seconds"` // each time
	Hidden   float64 `json:"hidden"`  // seconds of them that are hidden
}

// Exposed returns the seconds per step that are not hidden.
func (m Motion) Exposed() float64 { return float64(m.Times) * (m.Seconds - m.Hidden) }

// The names of the motions that can be hidden.
const (
	dispatch         = "dispatch"
	combine          = "combine"
	combineBackward  = "combine backward"
	dispatchBackward = "dispatch backward"
)

// motions lists the exchanges between hosts in a step, if groups of group hosts share the experts.
func (r Recipe) motions(hosts, group int) []Motion {
	sequences, _ := r.pass(hosts)
	cover := r.shared().Forward * float64(sequences*r.Ranks*r.Seq) / r.FLOPS
	all := r.sent(hosts, group)
	for i := range all {
		m := &all[i]
		m.Seconds = r.Link.seconds(m.Messages, m.Bytes)
		m.Hidden = r.hidden(*m, cover)
	}
	return all
}

// sent lists the exchanges between hosts in a step without their times, if groups of group hosts
// share the experts. It leaves out exchanges without messages.
func (r Recipe) sent(hosts, group int) (all []Motion) {
	_, passes := r.pass(hosts)
	add := func(times int, motions []Motion) {
		for _, m := range motions {
			if times > 0 && m.Messages > 0 && m.Bytes > 0 {
				m.Times = times
				all = append(all, m)
			}
		}
	}
	add(r.Model.MoELayers()*passes, r.ofLayer(group, float64(r.sequences(hosts)*r.Seq)/float64(passes)))
	add(r.Model.MoELayers(), []Motion{r.expertRows(hosts, group)})
	add(passes, []Motion{r.gradients(hosts)})
	add(1, r.ofStep(hosts, group))
	return all
}

// ofLayer lists the exchanges of a layer with experts in one pass over the given tokens of a host.
//
//	token counts: int32 [experts + hosts] of each rank to every other host
//	dispatch: tokens · (remote hosts · (row on the wire + 1 B) + remote choices · 1 or 2 B)
//	combine, dispatch backward: tokens · remote choices · row
//	combine backward: tokens · (remote hosts · row + remote choices · (4 B + 4 B))
//
// The 1 or 2 bytes per choice name the expert. The 4 bytes twice are its weight and, on the way
// back, the gradient of the weight.
//
// The call of a collective is a message to every other host, which includes short vectors. Later
// parts of a long message are not counted.
func (r Recipe) ofLayer(group int, tokens float64) []Motion {
	visits, choices := r.remote(group)
	visits, choices = tokens*visits, tokens*choices
	row, peers := float64(r.Model.Dim*r.Precision.DType.Size()), group-1
	return []Motion{
		r.allGather("token counts", group, 4*(r.Model.Experts+group)),
		{Name: dispatch, Messages: r.rowMessages() * peers, Bytes: visits*float64(r.rowBytes()+1) + choices*float64(r.expertBytes(group))},
		{Name: combine, Messages: peers, Bytes: choices * row},
		{Name: combineBackward, Messages: 3 * peers, Bytes: visits*row + choices*(4+4)},
		{Name: dispatchBackward, Messages: peers, Bytes: choices * row},
	}
}

// expertRows is what replicas of experts send of a layer in a step, to the hosts that compute
// gradients of weights. Of D replicas, with size the bytes of an element:
//
//	(D-1)/D · tokens · choices · size · (3 · width of an expert + 2 · hidden size)
//
// Each choice has a row of the inputs and one of the outputs' gradients, of an expert's two
// weights. The ends of each expert's rows are another 4 bytes per weight and pass.
func (r Recipe) expertRows(hosts, group int) Motion {
	_, passes := r.pass(hosts)
	others := hosts/group - 1
	rows := float64(others) / float64(others+1) * float64(r.sequences(hosts)*r.Seq*r.Model.TopK)
	m := r.Model
	ends := 2 * 4 * passes * m.Experts / group * others
	return Motion{
		Name: "expert rows", Messages: (2*2*passes + 1) * others,
		Bytes: rows*float64(r.Precision.DType.Size()*(3*m.ExpertInter+2*m.Dim)) + float64(ends),
	}
}

const vectors = 2 // of replicated parameters: FP32 ones, and matrices in the working type

// gradients is the sum of the gradients of replicated parameters in one pass: (H-1)/H · 4 B each.
func (r Recipe) gradients(hosts int) Motion {
	others := hosts - 1
	return Motion{Name: "gradients", Messages: vectors * 2 * others, Bytes: float64(others) / float64(hosts) * 4 * float64(r.Model.Count().Replicated)}
}

// ofStep lists the other exchanges around the optimizer.
//
//	weights: (H-1)/H · 2 or 4 B per replicated parameter
//	expert weights: (D-1)/D · 2 B per parameter of the host's experts, D replicas of the group
//	loads, norm, loss: the vectors of all ranks to every other host
//
// A long vector is reduce-scattered and all-gathered, as gradients are. A reduce-scatter and an
// all-gather each take one message more to every other host than the call.
func (r Recipe) ofStep(hosts, group int) []Motion {
	counts := r.Model.Count()
	others, replicas := hosts-1, float64(hosts/group)
	away := float64(others) / float64(hosts)
	return []Motion{
		{Name: "weights", Messages: vectors * 2 * others, Bytes: away * r.weightBytes()},
		{Name: "expert weights", Messages: 2 * (hosts/group - 1), Bytes: (replicas - 1) / replicas * float64(r.Precision.DType.Size()) * float64(counts.Routed) / float64(group)},
		r.allReduce("router loads", hosts, 8*r.Model.MoELayers()*r.Model.Experts),
		r.allReduce("gradient norm", hosts, 8*len(exact.Sum{})),
		r.allReduce("loss", hosts, 8*lossNumbers),
	}
}

const (
	lossNumbers = 8       // of 8 bytes each, which the ranks sum with the loss
	callRoom    = 7 << 10 // bytes that travel with a rank's call of a collective
)

// allGather returns the motion of an all-gather of bytes bytes per rank.
func (r Recipe) allGather(name string, hosts, bytes int) Motion {
	m := Motion{Name: name, Messages: hosts - 1, Bytes: float64((hosts - 1) * r.Ranks * bytes)}
	if bytes > callRoom {
		m.Messages *= 2
	}
	return m
}

// allReduce returns the motion of an all-reduce of a vector of bytes bytes.
func (r Recipe) allReduce(name string, hosts, bytes int) Motion {
	if bytes <= callRoom {
		return r.allGather(name, hosts, bytes)
	}
	return Motion{Name: name, Messages: 3 * (hosts - 1), Bytes: 2 * float64(hosts-1) / float64(hosts) * float64(bytes)}
}

// hidden returns the seconds of a motion that are hidden. cover is the time of the shared experts'
// forward pass in a layer.
func (r Recipe) hidden(m Motion, cover float64) float64 {
	switch m.Name {
	case dispatch:
	case combineBackward:
		cover *= 2 // two products for one of the forward pass
	case combine, dispatchBackward:
		cover = 0 // the next operation needs the result
	default:
		return 0
	}
	if r.Hidden != nil {
		return *r.Hidden * m.Seconds
	}
	return min(m.Seconds, cover)
}

// shared returns the FLOPs per token in the shared experts of one layer.
func (r Recipe) shared() moe.FLOPs {
	var sum moe.FLOPs
	for _, m := range r.Model.Modules(r.Seq) {
		if m.Part == moe.Shared {
			sum = sum.Plus(m.FLOPs)
		}
	}
	layers := float64(max(r.Model.MoELayers(), 1))
	return moe.FLOPs{Forward: sum.Forward / layers, Dgrad: sum.Dgrad / layers, Wgrad: sum.Wgrad / layers}
}

// remote returns the expected number of remote hosts that a token visits among group hosts, and of
// its choices there, if its experts are drawn uniformly within the router's group limit. By
// symmetry its own host is as likely as any other. Of G places, k distinct draws visit G·(1 -
// C(E-E/G, k)/C(E, k)).
func (r Recipe) remote(group int) (hosts, choices float64) {
	m := r.Model
	if group == 1 {
		return 0, 0
	}
	away := float64(group-1) / float64(group)
	return away * projection.DistinctLimited(group, m.Experts/group, m.TopK, m.Groups, m.TopKGroups), away * float64(m.TopK)
}

// rowMessages returns the number of messages that carry rows to a host: a header that names their
// experts, and the rows, whose scales travel separately.
func (r Recipe) rowMessages() int {
	if r.Wire == ep.MXFP8 {
		return 3
	}
	return 2
}

// expertBytes returns the size of the number of an expert on its host.
func (r Recipe) expertBytes(group int) int {
	if r.Model.Experts/group <= 1<<8 {
		return 1
	}
	return 2
}

// rowBytes returns the size of a token on the way to its experts.
func (r Recipe) rowBytes() int {
	dim := r.Model.Dim
	if r.Wire == ep.MXFP8 {
		return dim + mx.E4M3.BlocksIn(dim)
	}
	return dim * r.Precision.DType.Size()
}

// weightBytes returns the size of the working weights of all replicated parameters.
func (r Recipe) weightBytes() (sum float64) {
	for _, m := range r.Model.Modules(r.Seq) {
		if m.Class != moe.Expert {
			sum += float64(m.Params) * float64(r.weightSize(m))
		}
	}
	return sum
}

// weightSize returns the bytes per working weight.
func (r Recipe) weightSize(m moe.Module) int {
	if m.Class == moe.Single {
		return 4
	}
	return r.Precision.DType.Size()
}
