package mesh

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	for _, test := range []struct {
		world int
		given Degrees
		want  string
	}{
		{8, Degrees{}, "dp1x8-ep8"},
		{8, Degrees{DPReplicate: 1, DPShard: -1, EP: -1}, "dp1x8-ep8"},
		{8, Degrees{DPReplicate: 2}, "dp2x4-ep4"},
		{8, Degrees{DPReplicate: 2, DPShard: -1, EP: 2, PP: 1, CP: 1, TP: 1}, "dp2x4-ep2"},
		{8, Degrees{EP: 2}, "dp1x8-ep2"},
		{8, Degrees{DPReplicate: 8}, "dp8x1-ep1"},
		{12, Degrees{DPReplicate: 2, DPShard: 6, EP: 3}, "dp2x6-ep3"},
		{1, Degrees{}, "dp1x1-ep1"},
		{8, Degrees{CP: 4, EP: 2}, "dp1x2-cp4-ep2"},
		{8, Degrees{CP: 2, DPReplicate: 2}, "dp2x2-cp2-ep4"},
		{8, Degrees{PP: 2}, "pp2-dp1x4-ep4"},
		{8, Degrees{PP: 2, DPReplicate: 2, EP: 1}, "pp2-dp2x2-ep1"},
		{4, Degrees{PP: 4}, "pp4-dp1x1-ep1"},
	} {
		l, err := Resolve(test.world, test.given, Model{Experts: 24, Batch: 24})
		if err != nil || l.Name() != test.want {
			t.Errorf("%+v on %d ranks: %v, %v; want %s", test.given, test.world, l, err, test.want)
		}
	}
}

func TestBrokenRules(t *testing.T) {
	for _, test := range []struct {
		world   int
		given   Degrees
		of      Model
		rule    Rule
		nearest string
		want    string
	}{
		{8, Degrees{DPReplicate: 2, DPShard: 3}, Model{}, RuleWorld, "dp2x4-ep4",
			"dp_replicate 2 · dp_shard 3 is not 8 ranks (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is dp_replicate 2, dp_shard 4, ep 4"},
		{8, Degrees{DPReplicate: 3}, Model{}, RuleWorld, "dp4x2-ep2",
			"dp_replicate 3 does not divide 8 ranks (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is dp_replicate 4, dp_shard 2, ep 2"},
		{8, Degrees{EP: 3}, Model{}, RuleEP, "dp1x8-ep4",
			"ep 3 does not divide dp_shard 8 (ep divides dp_shard · cp · tp): the nearest legal layout is dp_replicate 1, dp_shard 8, ep 4"},
		{8, Degrees{}, Model{Experts: 12}, RuleExperts, "dp1x8-ep4",
			"ep 8 does not divide 12 experts (ep divides the number of routed experts): the nearest legal layout is dp_replicate 1, dp_shard 8, ep 4"},
		{12, Degrees{TP: 3, EP: 2}, Model{}, RuleSharers, "dp1x3-tp4-ep2",
			"tp is 3 (cp and tp are powers of two): the nearest legal layout is dp_replicate 1, dp_shard 3, tp 4, ep 2"},
		{8, Degrees{CP: 2, TP: 8}, Model{}, RuleWorld, "dp1x1-tp8-ep8",
			"tp 8 does not divide 4 groups of cp 2 ranks (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is dp_replicate 1, dp_shard 1, tp 8, ep 8"},
		{8, Degrees{TP: 2, DPReplicate: 4, EP: 4}, Model{}, RuleEP, "dp2x2-tp2-ep4",
			"ep 4 does not divide dp_shard 1 · tp 2 (ep divides dp_shard · cp · tp): the nearest legal layout is dp_replicate 2, dp_shard 2, tp 2, ep 4"},
		{8, Degrees{PP: 3}, Model{}, RuleWorld, "pp4-dp1x2-ep2",
			"pp 3 does not divide a world of 8 (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is pp 4, dp_replicate 1, dp_shard 2, ep 2"},
		{8, Degrees{PP: 2, DPReplicate: 2, DPShard: 4}, Model{}, RuleWorld, "dp2x4-ep4",
			"dp_replicate 2 · dp_shard 4 is not 4 ranks of a stage, of 2 stages (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is pp 1, dp_replicate 2, dp_shard 4, ep 4"},
		{8, Degrees{PP: math.MaxInt}, Model{}, RuleWorld, "pp8-dp1x1-ep1",
			"pp 9223372036854775807 does not divide a world of 8 (world = pp · dp_replicate · dp_shard · cp · tp): the nearest legal layout is pp 8, dp_replicate 1, dp_shard 1, ep 1"},
		{8, Degrees{EP: -2}, Model{}, RuleDegree, "dp1x8-ep8",
			"ep is -2 (a degree is 1 or more): the nearest legal layout is dp_replicate 1, dp_shard 8, ep 8"},
		{0, Degrees{}, Model{}, RuleDegree, "", "world is 0 (a degree is 1 or more): use 1 rank or more"},
		{8, Degrees{EP: 2}, Model{Batch: 13}, RuleBatch, "",
			"dp_replicate 1 · dp_shard 8 does not divide a batch of 13 sequences (dp_replicate · dp_shard divides the batch): the nearest legal batch is 16"},
	} {
		got, err := Resolve(test.world, test.given, test.of)
		var broken *Error
		if !errors.As(err, &broken) || got != (Layout{}) {
			t.Errorf("%+v on %d ranks: %v, %v", test.given, test.world, got, err)
			continue
		}
		if broken.Rule != test.rule || broken.Error() != test.want {
			t.Errorf("%+v on %d ranks:\n got %s\nwant %s", test.given, test.world, broken, test.want)
		}
		if near := broken.Nearest; test.nearest == "" && near != (Layout{}) || test.nearest != "" && near.Name() != test.nearest {
			t.Errorf("%+v on %d ranks: the nearest is %v, want %s", test.given, test.world, near, test.nearest)
		}
	}
}

// TestNearestIsLegal: whatever the degrees, Resolve returns one of the legal layouts, with the
// degrees that were given, or suggests one of them, which it then accepts.
func TestNearestIsLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		degree := rapid.IntRange(-2, 20)
		of := Model{Experts: rapid.IntRange(1, 64).Draw(t, "experts")}
		world := rapid.IntRange(1, 32).Draw(t, "world")
		given := Degrees{DPReplicate: degree.Draw(t, "replicate"), DPShard: degree.Draw(t, "shard"), EP: degree.Draw(t, "ep"), CP: rapid.IntRange(-1, 5).Draw(t, "cp"), TP: degree.Draw(t, "tp"), PP: rapid.IntRange(-2, 5).Draw(t, "pp")}
		l, err := Resolve(world, given, of)
		if err == nil {
			for _, one := range [...][2]int{{given.DPReplicate, l.DPReplicate}, {given.DPShard, l.DPShard}, {given.EP, l.EP}, {given.CP, l.Context()}, {given.TP, l.Tensor()}, {given.PP, l.PP}} {
				if one[0] > 0 && one[0] != one[1] {
					t.Fatalf("%+v on %d ranks became %v", given, world, l)
				}
			}
		} else {
			l = err.(*Error).Nearest
		}
		if l.World != world || l.PP*l.StageRanks() != world || !slices.Contains(Sharing(world/l.PP, 1, l.Context(), l.Tensor(), of.Experts), l.Stage()) {
			t.Fatalf("%v is not a legal layout of %d ranks and %d experts", l, world, of.Experts)
		}
		again, err := Resolve(world, Degrees{PP: l.PP, DPReplicate: l.DPReplicate, DPShard: l.DPShard, CP: l.CP, TP: l.TP, EP: l.EP}, of)
		if err != nil || again != l {
			t.Fatalf("%v became %v, %v", l, again, err)
		}
	})
}

func TestAll(t *testing.T) {
	for _, test := range []struct {
		world, experts int
		want           []string
	}{
		{1, 8, []string{"dp1x1-ep1"}},
		{4, 8, []string{"dp1x4-ep4", "dp1x4-ep2", "dp1x4-ep1", "dp2x2-ep2", "dp2x2-ep1", "dp4x1-ep1"}},
		{4, 2, []string{"dp1x4-ep2", "dp1x4-ep1", "dp2x2-ep2", "dp2x2-ep1", "dp4x1-ep1"}},
		{6, 9, []string{"dp1x6-ep3", "dp1x6-ep1", "dp2x3-ep3", "dp2x3-ep1", "dp3x2-ep1", "dp6x1-ep1"}},
		{4, 0, []string{"dp1x4-ep4", "dp2x2-ep2", "dp4x1-ep1"}},
	} {
		var got []string
		for _, l := range Sharing(test.world, 1, 1, 1, test.experts) {
			got = append(got, l.Name())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%d ranks, %d experts: %q, want %q", test.world, test.experts, got, test.want)
		}
	}
	if n := len(Sharing(8, 1, 1, 1, 64)) + len(Sharing(16, 1, 1, 1, 64)); n != 25 {
		t.Errorf("8 and 16 ranks have %d layouts, want 10 + 15", n)
	}
	n := 0
	for _, cp := range []int{1, 2, 4, 8} {
		for _, tp := range []int{1, 2, 4, 8} {
			n += len(Sharing(8, 1, cp, tp, 64))
		}
	}
	if n != 65 {
		t.Errorf("8 ranks have %d layouts with cp and tp, want 65", n)
	}
}
