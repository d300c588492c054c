package hosts

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"spmoe/collective/ep"
	"spmoe/moe"
)

// small is a recipe whose counts are easy to write down: 8 experts, two ranks a host, one layer
// with experts.
func small(t testing.TB) Recipe {
	t.Helper()
	m := flavor(t, "debug")
	m.Dim, m.Layers, m.DenseLayers, m.DenseInter = 64, 2, 1, 64
	m.Heads, m.KVRank, m.NopeDim, m.RopeDim, m.ValueDim = 2, 16, 8, 8, 16
	m.Experts, m.TopK, m.ExpertInter, m.SharedExperts = 8, 2, 32, 1
	return Recipe{Model: m, Precision: precision(t, "bf16"), Ranks: 2, Seq: 32, Batch: 4, FLOPS: 1e9, Link: Link{Bandwidth: 1e6, Latency: 1e-3}}
}

func flavor(t testing.TB, name string) moe.Config {
	t.Helper()
	m, err := moe.FlavorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func precision(t testing.TB, name string) moe.Precision {
	t.Helper()
	p, err := moe.PrecisionByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func project(t testing.TB, r Recipe, most int) []Row {
	t.Helper()
	rows, err := Project(r, most)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// One host sends nothing and does what was measured.
func TestOneHost(t *testing.T) {
	for _, f := range moe.Flavors() {
		r := small(t)
		r.Model = f.Config
		rows := project(t, r, 1)
		row := rows[0]
		if len(rows) != 1 || row.Sent != 0 || row.Exposed != 0 || row.Efficiency != 1 || len(row.Motions) != 0 || row.EPHosts != 1 || row.Replicas != 1 || !row.Fits {
			t.Errorf("%s: %+v", f.Name, rows)
		}
		if want := r.FLOPS / f.Config.FLOPsPerToken(r.Seq); math.Abs(row.TokensPerSecond/want-1) > 1e-12 {
			t.Errorf("%s: %g tokens/s, measured were %g", f.Name, row.TokensPerSecond, want)
		}
	}
}

// What 8 hosts do, computed by hand: two groups of 4 hosts with two experts each.
func TestByHand(t *testing.T) {
	const (
		single     = 64*8 + 2*(64+64+16) + 64 // router and norms
		replicated = 2*256*64 + 2*(64*32+64*24+16*48+32*64) + 3*64*64 + 3*64*32 + single
		routed     = 8 * 3 * 64 * 32
		tokens     = 4 * 32
		visited    = 4 * (1 - 15./28) * 3 / 4 // C(6, 2) = 15 of C(8, 2) = 28 draws miss a host
	)
	row := project(t, small(t), 8)[3]
	want := []Motion{
		{Name: "token counts", Times: 1, Messages: 3, Bytes: 3 * 2 * (8 + 4) * 4},
		{Name: "dispatch", Times: 1, Messages: 6, Bytes: tokens * (visited*129 + 1.5)},
		{Name: "combine", Times: 1, Messages: 3, Bytes: tokens * 1.5 * 128},
		{Name: "combine backward", Times: 1, Messages: 9, Bytes: tokens * (visited*128 + 1.5*8)},
		{Name: "dispatch backward", Times: 1, Messages: 3, Bytes: tokens * 1.5 * 128},
		{Name: "expert rows", Times: 1, Messages: 5, Bytes: tokens*2*(3*32+2*64) + 2*4*2},
		{Name: "gradients", Times: 1, Messages: 28, Bytes: 7. / 8 * 4 * replicated},
		{Name: "weights", Times: 1, Messages: 28, Bytes: 7. / 8 * (2*replicated + 2*single)},
		{Name: "expert weights", Times: 1, Messages: 2, Bytes: routed / 4},
		{Name: "router loads", Times: 1, Messages: 7, Bytes: 7 * 2 * 8 * 8},
		{Name: "gradient norm", Times: 1, Messages: 7, Bytes: 7 * 2 * 8 * 69},
		{Name: "loss", Times: 1, Messages: 7, Bytes: 7 * 2 * 8 * 8},
	}
	if len(row.Motions) != len(want) {
		t.Fatalf("%+v", row.Motions)
	}
	flops := 3 * 2 * float64(replicated-256*64+2*3*64*32) // embedding looked up, two experts a token
	flops += 6 * 2 * 2 * (16 + 16) * 32
	shared := 2 * 3 * 64 * 32 * tokens / 1e9              // seconds of its forward pass
	uneven := 1. / 3 * 2 * 2 * 3 * 64 * 32 * tokens / 1e9 // two of three matrices with the rows of two replicas
	step, sent := flops*tokens/1e9, 0.0
	if math.Abs(row.Compute/step-1) > 1e-12 {
		t.Errorf("computing takes %g s, want %g", row.Compute, step)
	}
	if math.Abs(row.Uneven/uneven-1) > 1e-12 {
		t.Errorf("ranks wait %g s for others, want %g", row.Uneven, uneven)
	}
	step += uneven
	for i, m := range row.Motions {
		w := want[i]
		if m.Name != w.Name || m.Times != w.Times || m.Messages != w.Messages || math.Abs(m.Bytes-w.Bytes) > 1e-6 {
			t.Errorf("%+v, want %+v", m, w)
		}
		seconds := float64(w.Messages)*1e-3 + w.Bytes/1e6
		hidden := map[string]float64{"dispatch": shared, "combine backward": 2 * shared}[w.Name]
		if math.Abs(m.Seconds-seconds) > 1e-12 || math.Abs(m.Hidden-hidden) > 1e-12 {
			t.Errorf("%s takes %g s, of which %g are hidden, want %g and %g", m.Name, m.Seconds, m.Hidden, seconds, hidden)
		}
		step, sent = step+seconds-hidden, sent+w.Bytes
	}
	if math.Abs(row.Step/step-1) > 1e-12 || math.Abs(row.Sent/sent-1) > 1e-12 || math.Abs(row.TokensPerSecond*step/(8*tokens)-1) > 1e-12 {
		t.Errorf("%g tokens/s, a step of %g s and %g bytes, want %g s and %g", row.TokensPerSecond, row.Step, row.Sent, step, sent)
	}
}

// Replicas divide whole experts, evenly up to as many ranks as there are experts.
func TestUneven(t *testing.T) {
	for ranks, want := range map[int][5]float64{ // as a share of their products, on 1, 2, 4, 8, 16 hosts
		1: {0, 0, 0, 0, 1. / 3}, 2: {0, 0, 0, 1. / 3, 5. / 3}, 4: {0, 0, 1. / 3, 5. / 3, 13. / 3},
	} {
		r := small(t)
		r.Ranks, r.EPHosts = ranks, 1
		products := 2 * 2 * 3 * 64 * 32 * float64(r.Batch*r.Seq) / r.FLOPS
		for i, row := range project(t, r, 16) {
			if got := row.Uneven / products; math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("%d ranks on %d hosts wait %g times their products, want %g", ranks, row.Hosts, got, want[i])
			}
		}
	}
}

// More hosts are never more efficient, a better network never makes a step longer, and bytes do not
// depend on it.
func TestMonotony(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Recipe{
			Ranks: rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "ranks"), Seq: rapid.IntRange(1, 4096).Draw(t, "seq"),
			FLOPS: rapid.Float64Range(1e9, 1e15).Draw(t, "FLOP/s"),
			Link:  Link{rapid.Float64Range(1e6, 1e12).Draw(t, "bandwidth"), rapid.Float64Range(0, 1).Draw(t, "latency")},
		}
		f := rapid.SampledFrom(moe.Flavors()).Draw(t, "flavor")
		r.Model, r.Precision = f.Config, rapid.SampledFrom(moe.Precisions()[1:]).Draw(t, "precision")
		r.Batch = r.Ranks * rapid.IntRange(1, 8).Draw(t, "batch of a rank")
		r.MicroBatch = rapid.IntRange(0, 8).Draw(t, "micro-batch")
		rows, err := r.rows(2048)
		if err != nil {
			t.Fatal(err)
		}
		mx, fast, quick := r, r, r
		mx.Wire, fast.Link.Bandwidth, quick.Link.Latency = ep.MXFP8, 2*r.Link.Bandwidth, r.Link.Latency/2
		for i, row := range rows {
			if row.Exposed < 0 || row.Exposed > 1 || math.Abs(row.TokensPerSecond*row.Step/float64(row.Tokens)-1) > 1e-9 || row.EPHosts*row.Replicas != row.Hosts {
				t.Fatalf("%+v", row)
			}
			if i > 0 && (row.Efficiency > rows[i-1].Efficiency || row.Sent < rows[i-1].Sent) {
				t.Fatalf("%d hosts: efficiency %g, %g bytes, but %d hosts: %g, %g bytes", row.Hosts, row.Efficiency, row.Sent, rows[i-1].Hosts, rows[i-1].Efficiency, rows[i-1].Sent)
			}
			for _, better := range []Recipe{fast, quick} {
				if o := better.row(row.Hosts); o.Step > row.Step || o.Sent != row.Sent {
					t.Fatalf("%d hosts: a step of %g s and %g bytes, with %+v %g s and %g bytes", row.Hosts, row.Step, row.Sent, better.Link, o.Step, o.Sent)
				}
			}
			if o := mx.row(row.Hosts); row.EPHosts > 1 && o.Sent >= row.Sent { // a step may be longer: scales are one more message
				t.Fatalf("%d hosts: %g bytes, in MXFP8 %g", row.Hosts, row.Sent, o.Sent)
			}
		}
	})
}

// Experts are shared by as many hosts as hold equal parts of them and of the router's groups.
func TestGroups(t *testing.T) {
	for _, x := range []struct {
		flavor             string
		ranks, limit, most int
		want               string // hosts: of a group x groups
	}{
		{"debug", 2, 0, 16, "1x1 2x1 4x1 8x1 8x2"},
		{"debug", 2, 4, 16, "1x1 2x1 4x1 4x2 4x4"},
		{"debug", 16, 0, 4, "1x1 1x2 1x4"},
		{"16B", 1, 0, 96, "1x1 2x1 4x1 8x1 16x1 32x1 64x1 32x3"},
		{"671B", 1, 0, 32, "1x1 2x1 4x1 8x1 8x2 8x4"},    // 8 groups
		{"671B", 1, 32, 32, "1x1 2x1 4x1 8x1 16x1 32x1"}, // a host has a part of a group
		{"671B", 64, 0, 8, "1x1 2x1 4x1 4x2"},
		{"236B", 2, 0, 10, "1x1 2x1 4x1 8x1 2x5"}, // 5 hosts would divide the experts, but not their groups
	} {
		r := small(t)
		r.Model, r.Ranks, r.Batch, r.EPHosts = flavor(t, x.flavor), x.ranks, x.ranks, x.limit
		var got []string
		for _, row := range project(t, r, x.most) {
			got = append(got, fmt.Sprintf("%dx%d", row.EPHosts, row.Replicas))
		}
		if strings.Join(got, " ") != x.want {
			t.Errorf("%s, %d ranks, at most %d hosts: %q, want %q", x.flavor, x.ranks, x.limit, got, x.want)
		}
	}
}

// With strong scaling hosts share a batch: computing shrinks, what is sent for parameters does not.
func TestStrong(t *testing.T) {
	r := small(t)
	r.Strong, r.Batch = true, 24
	rows := project(t, r, 64)
	if len(rows) != 3 || rows[2].Hosts != 4 { // 8 hosts have 16 ranks
		t.Fatalf("%+v", rows)
	}
	r.Strong, r.Batch = false, 6
	weak := project(t, r, 4)[2]
	strong := rows[2]
	if strong.Compute != rows[0].Compute/4 || strong.Tokens != rows[0].Tokens || strong.Sent != weak.Sent || strong.Step != weak.Step {
		t.Errorf("%+v, and 6 sequences a host: %+v", strong, weak)
	}
}

// Several passes repeat what a layer exchanges, and messages with it; the bytes are the same. They
// also repeat the sum of gradients.
func TestPasses(t *testing.T) {
	r := small(t)
	r.Batch = 8
	one := project(t, r, 4)[2]
	r.MicroBatch = 1 // of a rank's 4
	four := project(t, r, 4)[2]
	for i, m := range four.Motions {
		o, times := one.Motions[i], 1
		if i < 5 || m.Name == "gradients" {
			times = 4
		}
		bytes := o.Bytes / float64(times)
		if m.Name == "token counts" || m.Name == "gradients" {
			bytes = o.Bytes
		}
		if m.Times != times*o.Times || m.Messages != o.Messages || math.Abs(m.Bytes-bytes) > 1e-9 {
			t.Errorf("%+v in four passes, %+v in one", m, o)
		}
	}
	r.MicroBatch = 3
	if times := project(t, r, 4)[2].Motions[0].Times; times != 2*one.Motions[0].Times {
		t.Errorf("4 sequences in passes of 3: %d times, in one pass %d", times, one.Motions[0].Times)
	}
	if four.Memory >= one.Memory {
		t.Errorf("%g bytes in four passes, %g in one", four.Memory, one.Memory)
	}
}

// A given share of the exchange of tokens is hidden, and nothing else; without shared experts
// nothing is.
func TestHidden(t *testing.T) {
	r := small(t)
	share := 0.25
	r.Hidden = &share
	for _, m := range project(t, r, 8)[3].Motions {
		want := 0.0
		if strings.Contains(m.Name, "dispatch") || strings.Contains(m.Name, "combine") {
			want = share * m.Seconds
		}
		if m.Hidden != want {
			t.Errorf("%s: %g s hidden, want %g", m.Name, m.Hidden, want)
		}
	}
	r.Hidden, r.Model.SharedExperts = nil, 0
	for _, m := range project(t, r, 8)[3].Motions {
		if m.Hidden != 0 {
			t.Errorf("%s is hidden, by nothing: %g s", m.Name, m.Hidden)
		}
	}
}

// A dense model exchanges gradients and weights alone.
func TestDense(t *testing.T) {
	r := small(t)
	r.Model.DenseLayers = r.Model.Layers
	row := project(t, r, 8)[3]
	var names []string
	for _, m := range row.Motions {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, ", "); got != "gradients, weights, gradient norm, loss" || row.EPHosts != 1 || row.Replicas != 8 {
		t.Errorf("%s: %+v", got, row)
	}
}

// More hosts need less each, until replicas of experts get more rows of each other than they save.
func TestMemory(t *testing.T) {
	r := small(t)
	rows := project(t, r, 8)
	for i := 1; i < len(rows); i++ {
		if rows[i].Memory >= rows[i-1].Memory {
			t.Errorf("%d hosts need %g bytes each, %d %g", rows[i].Hosts, rows[i].Memory, rows[i-1].Hosts, rows[i-1].Memory)
		}
	}
	r.Memory = rows[1].Memory
	for i, row := range project(t, r, 8) {
		if row.Fits != (i >= 1) {
			t.Errorf("%d hosts: fits is %t", row.Hosts, row.Fits)
		}
	}
}

func TestRefused(t *testing.T) {
	hidden := 1.5
	for want, change := range map[string]func(*Recipe){
		"batch is 3: give a multiple of the 2 ranks of a host, such as 4": func(r *Recipe) { r.Batch = 3 },
		"batch is 0":                     func(r *Recipe) { r.Batch = 0 },
		"0 ranks of a host":              func(r *Recipe) { r.Ranks = 0 },
		"3 ranks do not divide":          func(r *Recipe) { r.Ranks, r.Batch = 3, 3 },
		"seq is 5000: give 1 to 4096":    func(r *Recipe) { r.Seq = 5000 },
		"micro-batch is -1":              func(r *Recipe) { r.MicroBatch = -1 },
		"groups of 3 hosts of 2 ranks":   func(r *Recipe) { r.EPHosts = 3 },
		"give a number such as 4":        func(r *Recipe) { r.EPHosts = 8 },
		"the model has no experts":       func(r *Recipe) { r.Model.DenseLayers, r.EPHosts = 2, 2 },
		"the hidden share":               func(r *Recipe) { r.Hidden = &hidden },
		"NaN FLOP/s":                     func(r *Recipe) { r.FLOPS = math.NaN() },
		"0 bytes per second":             func(r *Recipe) { r.Link.Bandwidth = 0 },
		"latency of -1 s":                func(r *Recipe) { r.Link.Latency = -1 },
		"memory of a host is -1":         func(r *Recipe) { r.Memory = -1 },
		"model.top_k is 9":               func(r *Recipe) { r.Model.TopK = 9 },
		"model.groups is 3":              func(r *Recipe) { r.Model.Groups = 3 },
		"groups of -2 hosts of 2 ranks ": func(r *Recipe) { r.EPHosts = -2 },
	} {
		r := small(t)
		change(&r)
		if _, err := Project(r, 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
	for _, most := range []int{0, MostHosts + 1} {
		if _, err := Project(small(t), most); err == nil {
			t.Errorf("%d hosts are not refused", most)
		}
	}
}

// What the projection takes for granted follows the recipe.
func TestAssumptions(t *testing.T) {
	half := 0.5
	for want, change := range map[string]func(*Recipe){
		"among 4 hosts a token goes to 1.39 others, once to each, in the type of the activations, and comes back once for each of 1.50 choices": func(*Recipe) {},
		"in MXFP8":                        func(r *Recipe) { r.Wire = ep.MXFP8 },
		"within 2 of 4 groups":            func(r *Recipe) { r.Model.Groups, r.Model.TopKGroups = 4, 2 },
		"strong scaling":                  func(r *Recipe) { r.Strong = true },
		"50 % of every exchange":          func(r *Recipe) { r.Hidden = &half },
		"nothing hides":                   func(r *Recipe) { r.Model.SharedExperts = 0 },
		"1000 us each; the ranks of a ho": func(*Recipe) {},
		"at most 2 hosts share the exp":   func(r *Recipe) { r.EPHosts = 2 },
	} {
		r := small(t)
		change(&r)
		if got := strings.Join(r.Assumptions(), "\n"); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
