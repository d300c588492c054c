package exchange

// The network between hosts: the speed of messages, and the traffic of a layer's exchange.

import (
	"errors"
	"slices"

	"spmoe/bench"
	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/mx"
	"spmoe/tensor"
)

// linkMessage is the number of bytes that each rank sends to measure the bandwidth of a link.
const linkMessage = 4 << 20

// Link measures between the hosts of c. Every rank calls it, and only rank 0 yields results: the
// latency and bandwidth of a link, and, for one layer's dispatch, the time and the bytes between
// hosts of the flat and of the hierarchical exchange.
func Link(c *collective.Comm, quick bool, yield func(Result)) error {
	if len(c.Hosts()) < 2 {
		return errors.New("all ranks are on one host: start them on two or more by mpirun, mpiexec or srun")
	}
	s := newSuite(c, yield)
	sh := shape{2048, 2048, 8, 64}
	if quick {
		s.rounds, sh.tokens = 5, 512
	}
	if err := s.latency(); err != nil {
		return err
	}
	if err := s.rate(); err != nil {
		return err
	}
	return s.between(sh)
}

// latency measures half the round-trip time of a small message between the first ranks of two
// hosts.
func (s *suite) latency() error {
	const turns = 100
	messages, word := s.comm.NewMessages(collective.KindBarrier), s.ex.New(tensor.UINT8, 8).Bytes()
	a, b := s.comm.Hosts()[0][0], s.comm.Hosts()[1][0]
	send := func(to int) error { messages.Send(to, word); return messages.Wait() }
	recv := func(from int) error { messages.Recv(from, word); return messages.Wait() }
	times, err := s.turns(turns, func() error {
		switch s.comm.Rank() {
		case a:
			return errors.Join(send(b), recv(b))
		case b:
			return errors.Join(recv(a), send(a))
		}
		return nil
	})
	if err == nil && s.lead() {
		s.yield(Result{Name: "link_latency_us", Value: bench.Median(times[0]) / 2, Unit: "us"})
	}
	return err
}

// rate measures the bandwidth at which each host sends to the next one while it receives from the
// previous one.
func (s *suite) rate() error {
	c := s.comm
	hosts, here := c.Hosts(), c.Host()
	next, before := (here+1)%len(hosts), (here+len(hosts)-1)%len(hosts)
	var sources []int
	for _, j := range hosts[before] {
		if c.Proxy(here, j) == c.Rank() {
			sources = append(sources, j)
		}
	}
	out := s.ex.New(tensor.UINT8, linkMessage).Bytes()
	in := s.ex.New(tensor.UINT8, max(1, len(sources)), linkMessage)
	messages := c.NewMessages(collective.KindBarrier)
	times, err := s.turns(1, func() error {
		for i, j := range sources {
			messages.Recv(j, in.Slice(i, i+1).Bytes())
		}
		messages.Send(c.Proxy(next, c.Rank()), out)
		return messages.Wait()
	})
	if err == nil && s.lead() {
		bytes := float64(linkMessage * len(hosts[here]))
		s.yield(Result{Name: "link_gbytes_per_s", Value: bytes / bench.Median(times[0]) / 1e3, Unit: "GB/s", Bytes: linkMessage})
	}
	return err
}

// between measures a layer's dispatch. The flat one sends a row per choice. The hierarchical one
// sends a row per host that a token visits, in BF16 and in MXFP8.
func (s *suite) between(sh shape) error {
	flat, hierarchical, mxfp8, err := s.layers(sh)
	if err != nil {
		return err
	}
	times, err := s.turns(1, flat.dispatch, hierarchical.dispatch, mxfp8.dispatchCodes, flat.combine, hierarchical.combine)
	if err != nil {
		return err
	}
	wrong := hierarchical.differs(flat)
	visits, remote, err := s.visits(flat)
	if err != nil {
		return err
	}
	row, code := float64(2*sh.hidden), float64(sh.hidden+mx.E4M3.BlocksIn(sh.hidden))
	for i, of := range []struct {
		name  string
		call  operation
		least float64 // minimum bytes to transfer
	}{
		{"flat_dispatch", flat.dispatch, remote * row},
		{"hierarchical_dispatch", hierarchical.dispatch, visits * row},
		{"hierarchical_dispatch_mxfp8", mxfp8.dispatchCodes, visits * code},
		{"flat_combine", flat.combine, remote * row},
		{"hierarchical_combine", hierarchical.combine, remote * row},
	} {
		sent, err := s.sentBy(of.call)
		if err != nil {
			return err
		}
		s.report(of.name, times[i], int(sent), 1, 0, wrong)
		if s.lead() {
			s.yield(Result{Name: of.name + "_bytes_over_rows", Value: sent / of.least, Unit: "x", Wrong: wrong})
		}
	}
	if s.lead() {
		for i, name := range []string{"hierarchical_over_flat_dispatch", "mxfp8_over_flat_dispatch"} {
			s.yield(Result{Name: name, Value: bench.MedianRatio(times[0], times[1+i]), Unit: "x", Wrong: wrong})
		}
		s.yield(Result{Name: "hierarchical_over_flat_combine", Value: bench.MedianRatio(times[3], times[4]), Unit: "x", Wrong: wrong})
	}
	return nil
}

// visits counts, over all ranks, the remote hosts that tokens visit, and the choices there.
func (s *suite) visits(l *layer) (visits, choices float64, err error) {
	c := s.comm
	layout, err := ep.NewLayout(l.experts, c.Size())
	if err != nil {
		return 0, 0, err
	}
	slots := l.topk.Dim(1)
	for t := range l.topk.Dim(0) {
		for h, ranks := range c.Hosts() {
			here := 0
			for _, e := range l.topk.I32()[t*slots : (t+1)*slots] {
				if h != c.Host() && slices.Contains(ranks, layout.Owner(int(e))) {
					here++
				}
			}
			choices += float64(here)
			visits += float64(min(here, 1))
		}
	}
	sums := []float64{visits, choices}
	err = collective.AllReduce(c, sums, collective.Sum)
	return sums[0], sums[1], err
}

// sentBy counts the bytes that all ranks send to other hosts in a call.
func (s *suite) sentBy(call operation) (float64, error) {
	before := s.comm.Sent()
	if err := call(); err != nil {
		return 0, err
	}
	sent := []float64{float64(s.comm.Sent() - before)}
	err := collective.AllReduce(s.comm, sent, collective.Sum)
	return sent[0], err
}
