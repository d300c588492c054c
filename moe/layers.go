package moe

// The list of a model's layers, and their linear layers: the one list from which FLOPs, bytes,
// memory and the projections follow.

import (
	"fmt"
	"slices"
	"strings"

	"spmoe/collective/mesh"
)

// layer returns the kinds of a layer. The layers that predict further ahead follow the others.
func (c Config) layer(i int) layerKinds {
	k := layerKinds{attention: latentKind{c}, feed: expertsKind{c}, residual: streamKind{}}
	switch {
	case c.Attention != "":
		k.attention = compressedKind{c, c.attentionOf(i)}
	case c.KVHeads != 0:
		k.attention = groupedKind{c}
	case c.IndexHeads != 0:
		k.attention = sparseKind{latentKind{c}, c.sharesChoice(i)}
	}
	if c.IsDense(i) {
		k.feed = denseKind{c}
	}
	switch {
	case i >= c.Layers:
		k.residual = joinKind{c}
	case c.ResidualStreams > 0:
		k.residual = streamsKind{c}
	}
	return k
}

// Linears returns the linear layers in the order of a pass, with the head after the layers that it
// follows.
func (c Config) Linears() (all []LinearLayer) {
	for i := range c.AllLayers() {
		if i == c.Layers {
			all = append(all, c.head(false))
		}
		c.layer(i).linears(func(l LinearLayer) {
			l.Ahead = i >= c.Layers
			for at := range all {
				if known := &all[at]; known.Name == l.Name && known.Ahead == l.Ahead {
					known.Layers++
					return
				}
			}
			all = append(all, l)
		})
	}
	return append(all, c.head(c.MTPLayers > 0))
}

// head returns the output head. Predictions further ahead use the model's own.
func (c Config) head(ahead bool) LinearLayer {
	l := matrix("head", Head, c.Dim, c.Vocab)
	if l.Ahead = ahead; ahead {
		l.Held = 0
	}
	return l
}

// Validate returns an error with one line per invalid field.
func (c Config) Validate() error {
	var bad []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	for _, f := range []size{
		{"vocab", c.Vocab, 1 << 24}, {"dim", c.Dim, 1 << 17}, {"layers", c.Layers, 1 << 10}, {"heads", c.Heads, 1 << 11},
		{"rope_dim", c.RopeDim, 1 << 12}, {"value_dim", c.ValueDim, 1 << 12}, {"max_positions", c.MaxPositions, 1 << 26},
	} {
		f.validate(must)
	}
	c.layer(0).attention.validate(must)
	c.validateIndexer(must)
	must(c.RopeDim%2 == 0, "model.rope_dim is %d: it must be even (rotary pairs)", c.RopeDim)
	must(c.DenseLayers >= 0 && c.DenseLayers <= c.Layers, "model.dense_layers is %d: give 0 to %d (model.layers)", c.DenseLayers, c.Layers)
	must(c.DenseLayers == 0 || c.DenseInter > 0 && c.DenseInter <= maxInter, "model.dense_inter is %d: give 1 to %d", c.DenseInter, maxInter)
	c.validateStreams(must)
	must(c.MTPLayers == 0 || c.MTPLayers == 1, "model.mtp_layers is %d: give 0 or 1", c.MTPLayers)
	must(atLeast(0, c.MTPWeight), "model.mtp_weight is %g: give 0 or more", c.MTPWeight)
	must(atLeast(0, c.NormEps) && c.NormEps > 0, "model.norm_eps is %g: give a positive number", c.NormEps)
	must(atLeast(1, c.RopeTheta) && c.RopeTheta > 1, "model.rope_theta is %g: give a number above 1", c.RopeTheta)
	c.YaRN.validate(must)
	if c.MoELayers() > 0 {
		c.validateRouting(must)
	}
	if len(bad) > 0 {
		return fmt.Errorf("invalid model:\n  %s", strings.Join(bad, "\n  "))
	}
	return nil
}

func (c Config) validateRouting(must func(bool, string, ...any)) {
	must(c.Experts > 0 && c.Experts <= 1<<14, "model.experts is %d: give 1 to %d", c.Experts, 1<<14)
	must(c.ExpertInter > 0 && c.ExpertInter <= maxInter, "model.expert_inter is %d: give 1 to %d", c.ExpertInter, maxInter)
	must(c.TopK > 0 && c.TopK <= c.Experts, "model.top_k is %d: give 1 to %d (model.experts)", c.TopK, c.Experts)
	must(c.SharedExperts >= 0 && c.SharedExperts <= 1<<10, "model.shared_experts is %d: give 0 to %d", c.SharedExperts, 1<<10)
	must(slices.Contains([]string{Sigmoid, Softmax, SqrtSoftplus}, c.ScoreFunc), "model.score_func is %q: give %s, %s or %s", c.ScoreFunc, Sigmoid, Softmax, SqrtSoftplus)
	must(c.HashLayers >= 0 && c.HashLayers <= c.Layers-c.DenseLayers, "model.hash_layers is %d: give 0 to %d (model.layers - model.dense_layers)", c.HashLayers, c.Layers-c.DenseLayers)
	must(atLeast(0, c.SwiGLULimit), "model.swiglu_limit is %g: give 0 (no limit) or more", c.SwiGLULimit)
	must(atLeast(0, c.RouteScale) && c.RouteScale > 0, "model.route_scale is %g: give a positive number", c.RouteScale)
	must(atLeast(0, c.BiasSpeed), "model.bias_speed is %g: give 0 (off) or more", c.BiasSpeed)
	must(atLeast(0, c.BalanceAlpha), "model.balance_alpha is %g: give 0 (off) or more", c.BalanceAlpha)
	if c.Groups <= 0 || c.Experts%max(c.Groups, 1) != 0 {
		must(false, "model.groups is %d: it must divide model.experts, %d", c.Groups, c.Experts)
		return
	}
	must(c.TopKGroups > 0 && c.TopKGroups <= c.Groups, "model.top_k_groups is %d: give 1 to %d (model.groups)", c.TopKGroups, c.Groups)
	must(c.TopK <= c.TopKGroups*c.Experts/c.Groups, "model.top_k is %d but the %d groups that a token may visit hold %d experts",
		c.TopK, c.TopKGroups, c.TopKGroups*c.Experts/c.Groups)
}

// CheckContext returns an error if ranks cannot share sequences of seq tokens with the bits of one
// rank.
func (p Precision) CheckContext(c Config, l mesh.Layout, seq int) error {
	n := l.Sharers()
	if n < 2 {
		return nil
	}
	if c.Attention != "" {
		return fmt.Errorf("%s is %d: with model.attention, all heads share one head of keys, which ranks cannot divide: train without cp and tp", l.SharersName(), n)
	}
	if c.IndexHeads > 0 {
		return fmt.Errorf("%s is %d and model.index_heads is %d: the indexer's loss is a sum over all heads of attention, and ranks that share a sequence have some each: give degrees of 1, and use dp, ep, fsdp or pp instead",
			l.SharersName(), n, c.IndexHeads)
	}
	if unit := n * p.contextUnit(); seq%unit != 0 {
		return fmt.Errorf("seq is %d: the %d ranks that share a sequence (%s) take whole blocks of %d tokens each: give a multiple of %d", seq, n, l.SharersName(), p.contextUnit(), unit)
	}
	if heads := c.layer(0).attention.shape().KVHeads; heads%n != 0 {
		name := "model.heads"
		if c.KVHeads != 0 {
			name = "model.kv_heads"
		}
		return fmt.Errorf("%s is %d: the ranks that share a sequence divide the heads of attention, and %s is %d: give degrees whose product divides it", l.SharersName(), n, name, heads)
	}
	return nil
}
