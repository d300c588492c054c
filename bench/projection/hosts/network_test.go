package hosts

import (
	"math"
	"testing"

	"spmoe/collective/ep"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
)

// Over all choices of experts that the router may make, tokens of all hosts visit other hosts, and
// have choices there, as often as is expected; and a host receives what it sends.
func TestRemoteByEnumeration(t *testing.T) {
	for _, x := range []struct{ experts, k, groups, keep, hosts, ranks int }{
		{8, 1, 1, 1, 4, 2}, {8, 3, 1, 1, 4, 2}, {8, 3, 1, 1, 8, 1}, {8, 2, 1, 1, 1, 4}, {12, 4, 1, 1, 3, 2},
		{12, 2, 3, 2, 3, 4}, {12, 3, 6, 3, 3, 2}, {16, 3, 4, 2, 8, 1}, {16, 4, 8, 3, 2, 4},
	} {
		layout, err := ep.NewLayout(x.experts, x.hosts*x.ranks)
		if err != nil {
			t.Fatal(err)
		}
		var topk []int32
		tokens := 0
		for _, e := range subsets(x.experts, x.k) {
			// Groups that the choices need may be visited in several ways: each is one more
			// possibility.
			for range kept(e, x.experts/x.groups, x.groups, x.keep) {
				topk = append(topk, e...)
				tokens++
			}
		}
		in := layout.Traffic(topk, x.k).TokenInRank
		visits, choices := 0, 0
		sent, received := make([]int, x.hosts), make([]int, x.hosts)
		for own := range x.hosts { // every host has every token once
			for token := range tokens {
				for host := range x.hosts {
					visited := false
					for r := range x.ranks {
						visited = visited || in[token*x.hosts*x.ranks+host*x.ranks+r]
					}
					if visited && host != own {
						visits++
						sent[own]++
						received[host]++
					}
				}
				for _, e := range topk[token*x.k:][:x.k] {
					if layout.Owner(int(e))/x.ranks != own {
						choices++
					}
				}
			}
		}
		r := small(t)
		r.Model.Experts, r.Model.TopK, r.Model.Groups, r.Model.TopKGroups, r.Ranks = x.experts, x.k, x.groups, x.keep, x.ranks
		gotHosts, gotChoices := r.remote(x.hosts)
		all := float64(tokens * x.hosts)
		if math.Abs(gotHosts-float64(visits)/all) > 1e-9 || math.Abs(gotChoices-float64(choices)/all) > 1e-9 {
			t.Errorf("%+v: %g hosts and %g choices, enumeration gives %g and %g", x, gotHosts, gotChoices, float64(visits)/all, float64(choices)/all)
		}
		for h := range sent {
			if sent[h] != received[h] || sent[h]*x.hosts != visits {
				t.Errorf("%+v: host %d sends %d rows and receives %d of %d", x, h, sent[h], received[h], visits)
			}
		}
	}
}

// subsets lists the k of n numbers from 0.
func subsets(n, k int) [][]int32 {
	if k == 0 {
		return [][]int32{nil}
	}
	var all [][]int32
	for last := k - 1; last < n; last++ {
		for _, s := range subsets(last, k-1) {
			all = append(all, append(s[:k-1:k-1], int32(last)))
		}
	}
	return all
}

// kept is the number of ways to choose keep of the groups so that all of some experts lie in them.
func kept(experts []int32, size, groups, keep int) (ways int) {
	for _, chosen := range subsets(groups, keep) {
		inside := 0
		for _, e := range experts {
			for _, g := range chosen {
				if int(e)/size == int(g) {
					inside++
				}
			}
		}
		if inside == len(experts) {
			ways++
		}
	}
	return ways
}

// Loads of few experts travel with the call; those of many are reduced part by part.
func TestAllReduce(t *testing.T) {
	r := small(t)
	for bytes, want := range map[int][2]Motion{
		7168: {{Name: "x", Messages: 3, Bytes: 3 * 2 * 7168}, {Name: "x", Messages: 3, Bytes: 3 * 2 * 7168}},
		7176: {{Name: "x", Messages: 9, Bytes: 2 * 3 * 7176 / 4.}, {Name: "x", Messages: 6, Bytes: 3 * 2 * 7176}},
	} {
		if got := [2]Motion{r.allReduce("x", 4, bytes), r.allGather("x", 4, bytes)}; got != want {
			t.Errorf("%d bytes: %+v, want %+v", bytes, got, want)
		}
	}
	if got := r.allReduce("x", 1, 8); got.Messages != 0 || got.Bytes != 0 {
		t.Errorf("one host: %+v", got)
	}
}

// A dispatch names the experts of each row, in two bytes where a host has more than 256; scales are
// a message of their own.
func TestDispatch(t *testing.T) {
	for _, x := range []struct {
		wire     ep.Wire
		experts  int
		messages int
		row      float64 // bytes, with the count of its choices
		choice   float64
	}{{ep.Plain, 512, 2, 129, 1}, {ep.MXFP8, 512, 3, 67, 1}, {ep.Plain, 1024, 2, 129, 2}} {
		r := small(t)
		r.Wire, r.Model.Experts = x.wire, x.experts
		visits, choices := r.remote(2)
		m := r.ofLayer(2, 1000)[1]
		if want := 1000 * (visits*x.row + choices*x.choice); m.Name != dispatch || m.Messages != x.messages || math.Abs(m.Bytes-want) > 1e-6 {
			t.Errorf("%v, %d experts: %+v, want %d messages and %g bytes", x.wire, x.experts, m, x.messages, want)
		}
	}
}

// Where hosts hold all experts, so that no routing is expected, they send what layouts counts.
func TestAgainstLayouts(t *testing.T) {
	for _, x := range []struct{ hosts, ranks, micro int }{{2, 2, 0}, {2, 4, 0}, {4, 1, 0}, {8, 2, 0}, {2, 2, 1}} {
		c, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		r := Recipe{Model: c.Model, Precision: precision(t, "bf16"), Ranks: x.ranks, Seq: 128, Batch: 16, MicroBatch: x.micro, EPHosts: 1, FLOPS: 1e9, Link: Link{Bandwidth: 1e6}}
		c.Seq, c.Batch, c.MicroBatch, c.EP, c.Precision = r.Seq, r.Batch*x.hosts, x.micro, x.ranks, "bf16"
		moved, err := estimate.LayoutTraffic(c, c.LayoutOrDefault(x.hosts*x.ranks), x.hosts)
		if err != nil {
			t.Fatal(err)
		}
		want := 0.0
		for _, m := range moved {
			want += float64(x.ranks) * m.Network
		}
		if got := r.row(x.hosts).Sent; math.Abs(got/want-1) > 0.01 {
			t.Errorf("%+v: a host sends %.0f bytes, layouts says %.0f: %.4f times as many", x, got, want, got/want)
		}
	}
}

// A row is dim elements of the activations, or 33 bytes for 32.
func TestRowBytes(t *testing.T) {
	for _, x := range []struct {
		precision string
		wire      ep.Wire
		dim, want int
	}{{"bf16", ep.Plain, 64, 128}, {"fp32", ep.Plain, 64, 256}, {"bf16", ep.MXFP8, 64, 66}, {"mxfp8", ep.MXFP8, 7168, 7392}, {"bf16", ep.MXFP8, 40, 42}} {
		r := small(t)
		r.Model.Dim, r.Wire, r.Precision = x.dim, x.wire, precision(t, x.precision)
		if got := r.rowBytes(); got != x.want {
			t.Errorf("%s, %v, %d: %d bytes, want %d", x.precision, x.wire, x.dim, got, x.want)
		}
	}
}
