package trainer

// How the ranks of a run divide the model, in the words of TorchTitan.

import (
	"errors"
	"fmt"
)

// Layout divides ranks. The dense mesh is [pp, dp_replicate, dp_shard], the sparse mesh of the
// routed experts [pp, dp_replicate, efsdp, ep]; the last dimension is consecutive ranks.
type Layout struct {
	PP          int `json:"pp"`
	DPReplicate int `json:"dp_replicate"`
	DPShard     int `json:"dp_shard"`
	EFSDP       int `json:"efsdp"`
	EP          int `json:"ep"`
}

// Replicas returns the number of ranks that hold the same experts.
func (l Layout) Replicas() int { return l.DPReplicate * l.EFSDP }

// Layout returns how the ranks of the run divide the model, or which rule its settings break.
func (c Config) Layout(ranks int) (l Layout, err error) {
	l = Layout{PP: 1, DPReplicate: c.DPReplicate, DPShard: c.DPShard, EP: c.EP}
	if l.DPReplicate < 1 || ranks%l.DPReplicate != 0 {
		return l, fmt.Errorf("dp_replicate is %d: give a divisor of the %d ranks: %s", l.DPReplicate, ranks, orList(divisorsOf(ranks)))
	}
	rest := ranks / l.DPReplicate
	if l.DPShard == -1 {
		l.DPShard = rest
	}
	if l.DPShard != rest {
		return l, fmt.Errorf("dp_shard is %d: dp_replicate %d times dp_shard must be the %d ranks: give %d, or -1 for the rest", l.DPShard, l.DPReplicate, ranks, rest)
	}
	if l.EP == 0 {
		l.EP = l.DPShard
	}
	if l.EP < 1 || l.DPShard%l.EP != 0 {
		return l, fmt.Errorf("ep is %d: give a divisor of dp_shard, which is %d: %s", l.EP, l.DPShard, orList(divisorsOf(l.DPShard)))
	}
	l.EFSDP = l.DPShard / l.EP
	return l, nil
}

// layout is Layout for a valid configuration. For an invalid one, it returns that of one group.
func (c Config) layout(ranks int) Layout {
	l, err := c.Layout(ranks)
	if err != nil {
		return Layout{1, 1, ranks, 1, ranks}
	}
	return l
}

// checkReplicas returns an error if experts would have replicas that cannot give the bits of one
// rank.
func (c Config) checkReplicas(ranks int) error {
	l, err := c.Layout(ranks)
	if err != nil || l.Replicas() == 1 || c.Model.MoELayers() == 0 {
		return err
	}
	if c.EPExchange != "onesided" {
		err = fmt.Errorf("ep is %d of %d ranks: experts with replicas need ep_exchange onesided, not %s", l.EP, ranks, c.EPExchange)
	}
	recipe, bad := c.Recipe()
	if bad == nil {
		bad = recipe.CheckReplicas()
	}
	return errors.Join(err, bad)
}

// onHosts returns an error if experts would have replicas, for ranks on several hosts.
func (c Config) onHosts(ranks int) error {
	if l := c.layout(ranks); l.Replicas() > 1 && c.Model.MoELayers() > 0 {
		return fmt.Errorf("ep is %d of %d ranks on several hosts: replicas of experts must be on one host: give --ep %d --dp-replicate 1", l.EP, ranks, ranks)
	}
	return nil
}

// Layouts lists the layouts of some ranks for a model with experts routed experts, which may be 0.
func Layouts(ranks, experts int) (all []Layout) {
	for _, replicate := range divisorsOf(ranks) {
		shard := ranks / replicate
		for _, ep := range divisorsOf(shard) {
			if experts%ep == 0 {
				all = append(all, Layout{1, replicate, shard, shard / ep, ep})
			}
		}
	}
	return all
}

// String implements [fmt.Stringer]: "dp_replicate 2, dp_shard 4, ep 2".
func (l Layout) String() string {
	return fmt.Sprintf("dp_replicate %d, dp_shard %d, ep %d", l.DPReplicate, l.DPShard, l.EP)
}

// SetLayout sets the configuration's layout.
func (c *Config) SetLayout(l Layout) { c.DPReplicate, c.DPShard, c.EP = l.DPReplicate, l.DPShard, l.EP }
