package ep

// The exchange of a rank without peers: it allocates and counts what OneSided does, and moves no
// rows. Its results are uninitialized.

import (
	"slices"

	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// Dry is an [Exchange] over a communicator of [collective.NewDry], for an Exec whose kernels do no
// work. It allocates from the arenas, and counts in the communicators, what [OneSided] does. It
// accesses no memory of tensors. Choice k of token t is expert (t*slots+k) % experts on every rank,
// and all ranks have the same number of tokens.
type Dry struct {
	one *OneSided

	balanced []int32 // rows per expert, of each rank
	visits   []int32 // tokens that visit each host
	visitors [2]int  // the numbers of tokens and slots of visits
}

var _ Exchange = (*Dry)(nil)

// NewDry returns the exchange of one rank of c, a communicator of [collective.NewDry]. It panics if
// the number of ranks does not divide the experts.
func NewDry(c *collective.Comm, experts int, options Options) *Dry {
	layout, err := NewLayout(experts, c.Size())
	if err != nil {
		panic(err)
	}
	s := newOneSided(c, layout)
	s.Options = options
	d := &Dry{one: s, balanced: make([]int32, experts)}
	if hosts := c.Hosts(); len(hosts) > 1 {
		ranks := make([]int, len(hosts[c.Host()]))
		for i := range ranks {
			ranks[i] = i
		}
		s.host = collective.NewDry([][]int{ranks}, slices.Index(hosts[c.Host()], c.Rank()))
		s.hosts = newInternode(s, c)
		d.visits = make([]int32, len(hosts))
	}
	return d
}

// Host returns the communicator of the ranks of this host, which counts the rows that move. It is
// that of NewDry if there is one host.
func (d *Dry) Host() *collective.Comm { return d.one.host }

// Replicate implements [Exchange]. world is a communicator of [collective.NewDry] too.
func (d *Dry) Replicate(world *collective.Comm) error { return d.one.Replicate(world) }

// StartDispatch implements [Exchange].
func (d *Dry) StartDispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (Arrival, error) {
	a, err := d.dispatch(ex, h, x, topk)
	return a, wrap("dispatch", err)
}

func (d *Dry) dispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (a Arrival, err error) {
	if err := checkOneSided(x, topk); err != nil {
		return a, err
	}
	s := d.one
	if err := d.route(h, topk.Dim(0), topk.Dim(1)); err != nil {
		return a, err
	}
	h.y = tensor.Tensor{}
	a = newArrival(ex, "dispatch", s.Options.Dispatch, h, x)
	if err := s.openWindow(&a, h, tensor.Tensor{}); err != nil {
		return a, err
	}
	d.toHosts(h, func(host int, to *route) int {
		if s.Options.Dispatch == MXFP8 {
			allocatePanel(ex, x, to.rows)
		}
		return s.hosts.rowsSent(host, to, a.rowBytes())
	}, nil)
	work := put
	if s.Options.Dispatch == MXFP8 {
		work = putQuantized
	}
	allocateFor(ex, h.tokens, transfer{h: h, here: x}, work)
	return a, nil
}

// Combine implements [Exchange].
func (d *Dry) Combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error {
	if err := checkCombine(h, y, weights, out); err != nil {
		return wrap("combine", err)
	}
	h.y = y
	return wrap("combine", d.combineRows(ex, h, y, out))
}

func (d *Dry) combineRows(ex *tensor.Exec, h *Handle, rows, out tensor.Tensor) error {
	w, err := d.one.host.Open(collective.KindCombine, rowBytes(rows), rows.DType().Size(), rows.Bytes(), nil)
	if err != nil {
		return err
	}
	d.toHosts(h, nil, func(from *route) int { return from.backSent(rowBytes(rows)) })
	allocateFor(ex, h.tokens, transfer{h: h, here: out}, sum)
	return w.Close(h.Sent * rowBytes(rows))
}

// StartCombineBackward implements [Exchange].
func (d *Dry) StartCombineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (Arrival, error) {
	a, err := d.combineBackward(ex, h, dout, dweights)
	return a, wrap("combine backward", err)
}

func (d *Dry) combineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (a Arrival, err error) {
	if err := checkCombineBackward(h, dout, dweights); err != nil {
		return a, err
	}
	s := d.one
	a = newArrival(ex, "combine backward", s.Options.CombineBackward, h, h.y)
	if err := s.openWindow(&a, h, h.y); err != nil {
		return a, err
	}
	near := &Handle{slots: h.slots}
	for _, r := range s.comm.Hosts()[s.comm.Host()] {
		near.Sent += h.SendCounts[r]
	}
	t := transfer{h: near, here: dout, y: peerRows{hidden: h.y.Dim(1), dtype: h.y.DType()}}
	if a.MX.Codes.Valid() {
		t.scales.hidden = rowScales(h.y.Dim(1))
	}
	d.toHosts(h, func(_ int, to *route) int { return to.gradientsSent(rowBytes(dout)) }, (*route).weightGradientsSent)
	allocateFor(ex, h.tokens, t, putScaled)
	if s.hosts != nil {
		a.rest = func(ex *tensor.Exec) error {
			for k := range h.routes.from {
				allocateForSource(ex, h, &h.routes.from[k], t)
			}
			return nil
		}
	}
	return a, nil
}

// DispatchBackward implements [Exchange].
func (d *Dry) DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error {
	if err := checkDispatchBackward(h, drows, dx); err != nil {
		return wrap("dispatch backward", err)
	}
	return wrap("dispatch backward", d.combineRows(ex, h, drows, dx))
}

// route is that of OneSided without the places of rows.
func (d *Dry) route(h *Handle, tokens, slots int) error {
	s := d.one
	d.setCounts(tokens, slots)
	if err := s.route(h, nil, tokens, slots); err != nil {
		return err
	}
	h.Dropped = tokens*slots - h.Sent
	if n := s.hosts; n != nil {
		for host := range h.routes.to {
			to := &h.routes.to[host]
			to.rows, to.kept = n.tokens(s.comm.Rank(), host), n.choices(s.comm.Rank(), host)
		}
	}
	return nil
}

// setCounts sets the counts of all ranks, which their all-gathers leave as they are.
func (d *Dry) setCounts(tokens, slots int) {
	s := d.one
	d.balance(tokens, slots)
	if s.hosts != nil {
		each := len(s.hosts.mine)
		for source := range s.comm.Size() {
			at := s.hosts.all[source*each:][:each]
			visits := at[copy(at, d.balanced):]
			copy(visits, d.visits)
			visits[s.comm.HostOf(source)] = 0
		}
	}
	all := s.all
	switch {
	case s.replicas.world != nil:
		all = s.replicas.all
	case s.hosts != nil:
		return
	}
	for source := range len(all) / s.layout.Experts {
		copy(all[source*s.layout.Experts:], d.balanced)
	}
}

// balance sets the rows that a rank sends to each expert, and its tokens that visit each host.
func (d *Dry) balance(tokens, slots int) {
	s := d.one
	for e := range d.balanced {
		d.balanced[e] = int32((tokens*slots + len(d.balanced) - 1 - e) / len(d.balanced))
	}
	if s.hosts == nil || d.visitors == [2]int{tokens, slots} {
		return
	}
	d.visitors = [2]int{tokens, slots}
	clear(d.visits)
	newest := s.hosts.newest
	for h := range newest {
		newest[h] = -1
	}
	for i := range tokens * slots {
		if h, token := s.hosts.hostOf[i%len(d.balanced)], int32(i/slots); newest[h] != token {
			newest[h] = token
			d.visits[h]++
		}
	}
}

// toHosts counts what this rank sends to each other host, and to each rank there whose proxy it is.
// A nil function sends nothing.
func (d *Dry) toHosts(h *Handle, toHost func(host int, to *route) int, toSource func(from *route) int) {
	n := d.one.hosts
	if n == nil {
		return
	}
	for host := range h.routes.to {
		if toHost != nil && host != n.here {
			n.comm.CountSent(toHost(host, &h.routes.to[host]))
		}
	}
	for k := range h.routes.from {
		if toSource != nil {
			n.comm.CountSent(toSource(&h.routes.from[k]))
		}
	}
}

// allocateFor allocates what body and its kernels allocate in a part of n tokens.
func allocateFor(ex *tensor.Exec, n int, t transfer, body func(ex *tensor.Exec, t transfer, lo, hi int)) {
	if n < 1 {
		return
	}
	defer ex.Release(ex.Mark())
	body(ex, t, 0, 0)
}

// allocatePanel allocates what sendQuantized and its kernel allocate for rows like those of x.
func allocatePanel(ex *tensor.Exec, x tensor.Tensor, rows int) {
	defer ex.Release(ex.Mark())
	panel := ex.New(x.DType(), mostBatched, x.Dim(1))
	if rows = min(rows, mostBatched); rows == 0 {
		return
	}
	hidden, scales := x.Dim(1), rowScales(x.Dim(1))
	mx.Quantize(ex, mx.Tensor{ // only its shape matters
		Format: wireCast.Format, Blocks: mx.AlongRows,
		Codes:  tensor.FromBytes(x.Bytes(), tensor.UINT8, rows, hidden),
		Scales: tensor.FromBytes(x.Bytes(), tensor.UINT8, rows, scales),
	}, panel.Mat().RowSlice(0, rows), wireCast.Mode)
}

// allocateForSource allocates what forwardGradients allocates for a source.
func allocateForSource(ex *tensor.Exec, h *Handle, from *route, t transfer) {
	defer ex.Release(ex.Mark())
	ex.New(tensor.FP32, from.rows, h.slots)
	ex.New(tensor.FP32, from.rows, h.slots)
	t = t.virtual(from)
	allocateFor(ex, from.rows, t, putScaled)
}
