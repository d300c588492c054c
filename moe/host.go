package moe

// What the ranks of a host hold together: one copy of the dense group and, of each expert with
// replicas, one copy for these. A copy is weights, their quantized forms and gradients. Each weight
// is quantized by one rank. Each rank computes its own rows of a weight's gradient, from the tokens
// of the host's ranks. So the FP32 gradients exist once per host, no rank adds up those of others,
// and the work is shared evenly. doc.go has the order of the sums.

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"spmoe/collective"
	"spmoe/tensor"
)

// host is a rank's end of what its host shares, or of experts whose replicas are on several hosts.
// A nil host shares nothing.
type host struct {
	*peers
	offset  int // the rank that computes the first rows of the next weight
	mine    [][]byte
	waiting []wgrad
	order   []int // of the ranks' shares, if they are on several hosts: see [Group.Slices]
	ring    []int // ranks with this one's place, one per host, if sums go around them
	chosen  bool  // whether they do: the first product has compared bytes
}

// wgrad is the gradient of a layer's weight, whose operands are complete and do not change until it
// is computed.
type wgrad struct {
	layer *linear
	dy, x *activation
	rows  []wgradRows // of experts, instead of dy and x: those of each pass
}

// wgradRows are the operands of a layer's weight gradient: dy [rows, N] and x [rows, K] of the
// groups that end at ends.
type wgradRows struct {
	dy, x tensor.Tensor
	ends  []int32
}

// group returns the rows of group g.
func (r *wgradRows) group(g int) (lo, hi int) {
	if g > 0 {
		lo = int(r.ends[g-1])
	}
	return lo, int(r.ends[g])
}

// newHost returns nil if each rank must have a copy of its own, because it is the only one of c on
// its host, or because hosts have unequal numbers of ranks. local has the ranks of c on this host,
// if there are several hosts.
func newHost(c, local *collective.Comm) *host {
	if c != nil && len(c.Hosts()) > 1 {
		c = local
	}
	if c == nil || c.Size() == 1 {
		return nil
	}
	return &host{peers: newPeers(c, c)}
}

// first reports whether this rank allocates the memory of the host.
func (h *host) first() bool { return h == nil || h.comm.Rank() == 0 }

// allocate returns zeroed memory from an allocator: that of the first rank, for all ranks. It is
// collective unless h is nil.
func (h *host) allocate(from memory.Allocator, size int) ([]byte, error) {
	if _, dry := from.(tensor.DryMemory); dry {
		return from.Allocate(size), nil
	}
	var mine [][]byte
	if h.first() {
		mine = [][]byte{tensor.NewIn(from, tensor.UINT8, size).Bytes()}
	}
	if h == nil {
		return mine[0], nil
	}
	all, err := h.comm.OpenBuffers(mine)
	if err != nil {
		return nil, fmt.Errorf("sharing weights: %w", err)
	}
	shared, err := all.Of(0)
	closed := all.Close(0)
	if err := cmp.Or(err, closed); err != nil {
		return nil, err
	}
	return shared[0], nil
}

// sharedMemory allocates memory that the ranks of a host share. Each call is collective, and all
// ranks ask for the same sizes.
type sharedMemory struct {
	host *host
	from memory.Allocator
	err  error // the first one; memory is then this rank's own
}

// Allocate implements memory.Allocator.
func (s *sharedMemory) Allocate(size int) []byte {
	if s.err == nil {
		var b []byte
		if b, s.err = s.host.allocate(s.from, size); s.err == nil {
			return b
		}
	}
	return tensor.New(tensor.UINT8, size).Bytes()
}

// Reallocate implements memory.Allocator. Arenas do not call it.
func (s *sharedMemory) Reallocate(size int, b []byte) []byte {
	to := s.Allocate(size)
	copy(to, b)
	return to
}

// Free implements memory.Allocator. The memory lives as long as the model.
func (s *sharedMemory) Free([]byte) {}

// share returns the layers whose weights this rank quantizes. The largest are given away first,
// each to the rank that has least to do.
func (h *host) share(layers []*linear) (mine []*linear) {
	if h == nil {
		return layers
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b *linear) int { return b.W.Len() - a.W.Len() })
	work := make([]int, h.comm.Size())
	for _, l := range layers {
		to := slices.Index(work, slices.Min(work))
		work[to] += l.W.Len()
		if to == h.comm.Rank() {
			mine = append(mine, l)
		}
	}
	return mine
}

// leastWgradRows is the least number of rows of a dense gradient that a rank computes, because
// products of fewer rows use other kernels. Their first row is a multiple of wgradTile, or of the
// weight's own unit. Rows of experts are divided down to wgradTile: otherwise replicas would idle.
const (
	leastWgradRows = 128
	wgradTile      = 32
)

// assign gives parts of the next weight to ranks, at most one to each. If there are too few for all
// ranks, the first rank to get some changes from weight to weight.
func (h *host) assign(parts [][2]int) [][2]int {
	ranks := h.comm.Size()
	all := make([][2]int, ranks)
	for part := range parts {
		rank := (part + h.offset) % ranks
		if h.order != nil { // parts follow each other in this order
			rank = h.order[(part*ranks+h.offset)/len(parts)]
		}
		all[rank] = parts[part]
	}
	h.offset = (h.offset + len(parts)) % ranks
	return all
}

// expertUnit returns the rows of an expert's gradient that one rank computes, of rows. Replicas
// divide the gradient expert by expert. If they are more than the experts, several divide the rows
// of each: a row is one chain of sums on any rank. whole keeps the matrices of replicas on several
// hosts undivided, which the optimizer needs.
func (h *host) expertUnit(experts, rows int, whole bool) int {
	if h == nil || h.order != nil && whole {
		return rows
	}
	for parts := h.comm.Size() / experts; parts > 1; parts-- {
		if unit := rows / parts; rows%parts == 0 && unit%wgradTile == 0 {
			return unit
		}
	}
	return rows
}

// experts returns the groups whose gradients have some rows, of groups of n rows each.
func experts(rows [2]int, n int) (first, end int) { return rows[0] / n, (rows[1] + n - 1) / n }

// divideRows divides n rows of a gradient into up to most parts, in whole units.
func divideRows(n, most, unit int) (parts [][2]int) {
	if unit == 0 {
		unit = wgradTile
	}
	return divideUnits(n, min(n/max(leastWgradRows, unit), most), unit)
}

// divideUnits divides n rows into count parts, or one, in whole units.
func divideUnits(n, count, unit int) (parts [][2]int) {
	count = max(count, 1)
	units := (n + unit - 1) / unit
	for part := range count {
		parts = append(parts, [2]int{min(units*part/count*unit, n), min(units*(part+1)/count*unit, n)})
	}
	return parts
}

// divideRows sets which rows of the gradient this rank computes.
func (h *host) divideRows(w *weight) {
	n := w.Grad.Mat().Rows
	if w.rows = [2]int{0, n}; h != nil {
		parts := divideRows(n, h.comm.Size(), w.unit)
		if w.chain {
			parts = divideUnits(n, min(n/w.unit, h.comm.Size()), w.unit)
		}
		w.shared, w.shares = true, h.assign(parts)
		w.rows = w.shares[h.comm.Rank()]
	}
}
