package mesh

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// example is a mesh written out by hand: the groups that torch.arange(world) has along each axis
// when it is viewed as [dp_replicate, dp_shard] and as [dp_replicate, efsdp, ep].
type example struct {
	layout                         Layout
	replicate, shard, efsdp, ep    [][]int
	context, tensor                [][]int // nil: each rank alone
	replicas                       [][]int
	last                           map[Axis]int // coordinates of the last rank
	text, name                     string
	replicaCount, efsdpCount, data int
}

var examples = []example{{
	layout:       Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 4, EP: 2},
	replicate:    [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
	shard:        [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}},
	efsdp:        [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
	ep:           [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
	replicas:     [][]int{{0, 2, 4, 6}, {1, 3, 5, 7}},
	last:         map[Axis]int{PP: 0, DPReplicate: 1, DPShard: 3, EFSDP: 1, EP: 1},
	text:         "dp_replicate 2, dp_shard 4, ep 2",
	name:         "dp2x4-ep2",
	replicaCount: 4, efsdpCount: 2, data: 8,
}, {
	layout:       Layout{World: 16, PP: 1, DPReplicate: 2, DPShard: 8, EP: 4},
	replicate:    [][]int{{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}},
	shard:        [][]int{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}},
	efsdp:        [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}},
	ep:           [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}},
	replicas:     [][]int{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}},
	last:         map[Axis]int{PP: 0, DPReplicate: 1, DPShard: 7, EFSDP: 1, EP: 3},
	text:         "dp_replicate 2, dp_shard 8, ep 4",
	name:         "dp2x8-ep4",
	replicaCount: 4, efsdpCount: 2, data: 16,
}, {
	layout:       Layout{World: 6, PP: 1, DPReplicate: 1, DPShard: 6, EP: 3},
	replicate:    [][]int{{0}, {1}, {2}, {3}, {4}, {5}},
	shard:        [][]int{{0, 1, 2, 3, 4, 5}},
	efsdp:        [][]int{{0, 3}, {1, 4}, {2, 5}},
	ep:           [][]int{{0, 1, 2}, {3, 4, 5}},
	replicas:     [][]int{{0, 3}, {1, 4}, {2, 5}},
	last:         map[Axis]int{PP: 0, DPReplicate: 0, DPShard: 5, EFSDP: 1, EP: 2},
	text:         "dp_replicate 1, dp_shard 6, ep 3",
	name:         "dp1x6-ep3",
	replicaCount: 2, efsdpCount: 2, data: 6,
}, { // what pp = 2 will look like: the slowest axis of both meshes
	layout:       Layout{World: 8, PP: 2, DPReplicate: 2, DPShard: 2, EP: 2},
	replicate:    [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
	shard:        [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
	efsdp:        [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
	ep:           [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
	replicas:     [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
	last:         map[Axis]int{PP: 1, DPReplicate: 1, DPShard: 1, EFSDP: 0, EP: 1},
	text:         "pp 2, dp_replicate 2, dp_shard 2, ep 2",
	name:         "pp2-dp2x2-ep2",
	replicaCount: 2, efsdpCount: 1, data: 4,
}, { // ranks 0 and 1 share a sequence, and ep crosses from one sequence to the next
	layout:       Layout{World: 8, PP: 1, DPReplicate: 2, DPShard: 2, CP: 2, EP: 4},
	replicate:    [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
	shard:        [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
	context:      [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
	efsdp:        [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
	ep:           [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}},
	replicas:     [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
	last:         map[Axis]int{PP: 0, DPReplicate: 1, DPShard: 1, CP: 1, EFSDP: 0, EP: 3},
	text:         "dp_replicate 2, dp_shard 2, cp 2, ep 4",
	name:         "dp2x2-cp2-ep4",
	replicaCount: 2, efsdpCount: 1, data: 4,
}, { // four ranks share a sequence, two of them each the products of dense layers
	layout:       Layout{World: 8, PP: 1, DPReplicate: 1, DPShard: 2, CP: 2, TP: 2, EP: 8},
	replicate:    [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
	shard:        [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}},
	context:      [][]int{{0, 2}, {1, 3}, {4, 6}, {5, 7}},
	tensor:       [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}},
	efsdp:        [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
	ep:           [][]int{{0, 1, 2, 3, 4, 5, 6, 7}},
	replicas:     [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}},
	last:         map[Axis]int{PP: 0, DPReplicate: 0, DPShard: 1, CP: 1, TP: 1, EFSDP: 0, EP: 7},
	text:         "dp_replicate 1, dp_shard 2, cp 2, tp 2, ep 8",
	name:         "dp1x2-cp2-tp2-ep8",
	replicaCount: 1, efsdpCount: 1, data: 2,
}}

func TestWrittenOutMeshes(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			l := e.layout
			if l.String() != e.text || l.Name() != e.name {
				t.Errorf("%q has the name %q, want %q and %q", l, l.Name(), e.text, e.name)
			}
			if l.Replicas() != e.replicaCount || l.EFSDP() != e.efsdpCount || l.Batch() != e.data {
				t.Errorf("%d replicas, efsdp %d, batch %d", l.Replicas(), l.EFSDP(), l.Batch())
			}
			for _, along := range []struct {
				axes []Axis
				want [][]int
			}{
				{[]Axis{DPReplicate}, e.replicate}, {[]Axis{DPShard}, e.shard}, {[]Axis{EFSDP}, e.efsdp}, {[]Axis{EP}, e.ep},
				{[]Axis{DPReplicate, EFSDP}, e.replicas},
			} {
				if got := l.Groups(along.axes...); fmt.Sprint(got) != fmt.Sprint(along.want) {
					t.Errorf("along %v: %v, want %v", along.axes, got, along.want)
				}
			}
			if got := l.Groups(CP); e.context != nil && fmt.Sprint(got) != fmt.Sprint(e.context) || len(got)*l.Context() != l.World {
				t.Errorf("along cp: %v, want %v", got, e.context)
			}
			if got := l.Groups(TP); e.tensor != nil && fmt.Sprint(got) != fmt.Sprint(e.tensor) || len(got)*l.Tensor() != l.World {
				t.Errorf("along tp: %v, want %v", got, e.tensor)
			}
			for axis, want := range e.last {
				if got := l.Coordinate(l.World-1, axis); got != want {
					t.Errorf("the last rank's place along %s is %d, want %d", axis, got, want)
				}
			}
		})
	}
}

func anyLayout(t *rapid.T) Layout {
	world := rapid.IntRange(1, 48).Draw(t, "world")
	experts := rapid.IntRange(1, 64).Draw(t, "experts")
	cp, tp := 1<<rapid.IntRange(0, 2).Draw(t, "cp"), 1<<rapid.IntRange(0, 2).Draw(t, "tp")
	if world%(cp*tp) != 0 {
		cp, tp = 1, 1
	}
	return rapid.SampledFrom(Sharing(world, 1, cp, tp, experts)).Draw(t, "layout")
}

// TestRanksAreRowMajor: in both meshes a rank is the row-major index of its coordinates.
func TestRanksAreRowMajor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		for _, mesh := range [][]Axis{Dense[:], Sparse[:]} {
			for rank := range l.World {
				index := 0
				for _, a := range mesh {
					index = index*(l.Coordinate(l.World-1, a)+1) + l.Coordinate(rank, a)
				}
				if index != rank {
					t.Fatalf("%v: rank %d has the index %d in %v", l, rank, index, mesh)
				}
			}
		}
	})
}

// TestExpertsAreWholeInEachEPGroup: an ep group and the replicas of one of its ranks share that
// rank alone, and an ep group is a run of ranks that begins at a multiple of its size.
func TestExpertsAreWholeInEachEPGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		rank := rapid.IntRange(0, l.World-1).Draw(t, "rank")
		group, replicas := l.EPGroup(rank), l.ExpertReplicas(rank)
		if len(group) != l.EP || group[0]%l.EP != 0 || group[l.EP-1] != group[0]+l.EP-1 {
			t.Fatalf("%v: ep group %v", l, group)
		}
		if len(replicas) != l.Replicas() || len(group)*len(replicas) != l.World {
			t.Fatalf("%v: replicas %v", l, replicas)
		}
		for _, r := range group {
			if both := slices.Contains(replicas, r); both != (r == rank) {
				t.Fatalf("%v: rank %d, ep group %v, replicas %v", l, rank, group, replicas)
			}
		}
	})
}
