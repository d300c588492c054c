package moe

// Replicas of experts: groups of ranks that hold all experts train with the bits of one rank.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/collective/mesh"
	"spmoe/tensor"
)

// Experts have few rows here, and fewer on each replica, so that products of both kinds occur.
func TestReplicasGiveTheBitsOfOneRank(t *testing.T) {
	const sequences, seq = 8, 64
	cfg := with(quantizable(64, 64), func(c *Config) {
		c.MTPLayers, c.BalanceAlpha, c.QRank, c.MaxPositions, c.TopK = 1, 0.1, 32, seq, 2
	})
	b := batchOf(17, sequences, seq, cfg.Vocab)
	for _, precision := range []string{"fp32", "bf16", "mxfp8", "mxfp8-wgrad-bf16", "mxint8"} {
		t.Run(precision, func(t *testing.T) {
			want := trainedBy(t, cfg, precision, "onesided", b, 1, 1)
			for _, c := range [][2]int{{2, 1}, {4, 1}, {4, 2}, {8, 1}, {8, 2}, {8, 4}} {
				got := trainedWith(t, cfg, defaultOutputSizes(), precision, "onesided", b, c[0], c[1], 1, 1)
				got.equals(t, fmt.Sprintf("np %d, ep %d", c[0], c[1]), want)
			}
		})
	}
}

// Passes in flight, in any schedule, give the bits of one pass after the other.
func TestReplicasWithPassesInFlight(t *testing.T) {
	const ranks, seq = 4, 32
	sequences := [...]int{1, 2, 1}
	cfg := with(quantizable(64, 64), func(c *Config) { c.TopK, c.MaxPositions = 2, seq })
	precision := DefaultOptions().NVFP4.precision()
	precision.PlainTail = 0
	all := batchOf(41, 4*ranks, seq, cfg.Vocab)
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		on, err := NewMesh(c, mesh.Layout{World: ranks, PP: 1, DPReplicate: 2, DPShard: 2, EP: 2})
		if err != nil {
			return err
		}
		model, err := NewStage(on, cfg, precision, seq, nil, cfg.Whole())
		if err != nil {
			return err
		}
		spread(model)
		m := &member{c, tensor.NewExec(), model}
		m.ex.Poison = true
		for _, g := range model.Groups {
			g.Refresh(m.ex)
		}
		batch := func(i int) Batch {
			first := 4 * c.Rank()
			for _, n := range sequences[:i] {
				first += n
			}
			return all.part(first, first+sequences[i])
		}
		want, err := inOrder.run(m, batch)
		if err != nil {
			return err
		}
		for _, s := range schedules {
			got, err := s.run(m, batch)
			if err != nil {
				return err
			}
			got.equals(t, fmt.Sprintf("rank %d, %s", c.Rank(), s), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Each expert's memory exists once for all its replicas.
func TestReplicasShareMemory(t *testing.T) {
	const ranks, ep = 4, 2
	cfg := tiny()
	grads := make([]*float32, ranks)
	err := collective.NewWorld(ranks).Run(func(c *collective.Comm) error {
		on, err := NewMesh(c, mesh.Layout{World: ranks, PP: 1, DPReplicate: 1, DPShard: ranks, EP: ep})
		if err != nil {
			return err
		}
		m, err := NewStage(on, cfg, Unquantized(tensor.FP32), 8, nil, cfg.Whole())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(m.Groups, func(g *Group) bool { return g.Experts })
		grads[c.Rank()] = &m.Groups[i].Grad.F32()[0]
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if grads[0] != grads[2] || grads[1] != grads[3] || grads[0] == grads[1] {
		t.Errorf("the gradients of ranks 0 to 3 begin at %p", grads)
	}
}

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
