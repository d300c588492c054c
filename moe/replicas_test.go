package moe

// Replicas of experts: groups of ranks that hold all experts train with the bits of one rank.

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// The ranks of a host have dense weights and gradients in the same memory. Hosts with unequal
// numbers of ranks share nothing.
func TestHostsShareMemory(t *testing.T) {
	for _, c := range []struct {
		hosts []int
		equal [][]int // ranks with the same memory
	}{{[]int{2, 2}, [][]int{{0, 1}, {2, 3}}}, {[]int{3, 1}, nil}, {[]int{1, 1}, nil}} {
		cfg, ranks := tiny(), 0
		for _, n := range c.hosts {
			ranks += n
		}
		owner := make([]*float32, ranks)
		for _, err := range collective.NewHosts(c.hosts...).Run(func(c *collective.Comm) error {
			on, err := NewMesh(c, mesh.Default(ranks))
			if err != nil {
				return err
			}
			m, err := NewStage(on, cfg, Unquantized(tensor.FP32), 8, nil, cfg.Whole())
			if err != nil {
				return err
			}
			owner[c.Rank()] = &m.Groups[1].Grad.F32()[0]
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var equal [][]int
		for r := 0; r < ranks; r++ {
			if r+1 < ranks && owner[r] == owner[r+1] {
				equal = append(equal, []int{r, r + 1})
			}
		}
		if fmt.Sprint(equal) != fmt.Sprint(c.equal) {
			t.Errorf("hosts of %v ranks: %v have the same memory, want %v", c.hosts, equal, c.equal)
		}
	}
}

func TestMeshRefuses(t *testing.T) {
	err := collective.NewWorld(4).Run(func(c *collective.Comm) error {
		if _, err := NewMesh(c, mesh.Default(8)); err == nil || !strings.Contains(err.Error(), "a layout of 8 ranks") {
			t.Errorf("8 of 4 ranks: %v", err)
		}
		on, err := NewMesh(c, mesh.Layout{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 2})
		if err != nil {
			return err
		}
		o := DefaultOptions().FP8
		o.Gradient = gradientSquares
		p := o.precision()
		if _, err := NewStage(on, quantizable(64, 64), p, 8, nil, quantizable(64, 64).Whole()); err == nil || !strings.Contains(err.Error(), "has 128 rows of an expert") {
			t.Errorf("blocks with rows of several replicas: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Sums go around the hosts where that moves fewer bytes than rows.
func TestSumsOrRowsTravel(t *testing.T) {
	const experts, n, k = 2, 64, 32
	for _, c := range []struct {
		hosts, computing int // ranks
		rows             int32
		sums             bool
	}{{2, 2, 85, false}, {2, 2, 86, true}, {3, 2, 128, false}, {3, 2, 129, true}, {2, 4, 42, false}, {2, 4, 43, true}} {
		l := &linear{weight: weight{W: tensor.New(tensor.FP32, experts, n, k)}}
		for part := range c.computing {
			height := experts * n / c.computing
			l.shares = append(l.shares, [2]int{part * height, (part + 1) * height}, [2]int{}) // of each second rank: none
		}
		pass := wgradRows{dy: tensor.New(tensor.BF16, 0, n), x: tensor.New(tensor.BF16, 0, k)}
		h := &host{ring: make([]int, c.hosts), waiting: []wgrad{{layer: l, rows: []wgradRows{pass, pass}}}}
		ends := []int32{c.rows / 2, c.rows, 0, c.rows}
		if h.choose([][]int32{ends, ends}); h.ring != nil != c.sums { // 4·experts·n·k·hosts bytes, or 2·(n+k) per row
			t.Errorf("%+v: sums travel: %v", c, h.ring != nil)
		}
	}
}
