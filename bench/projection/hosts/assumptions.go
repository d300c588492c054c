package hosts

import (
	"fmt"

	"spmoe/collective/ep"
)

// Assumptions lists the assumptions of the projection, one per line.
func (r Recipe) Assumptions() []string {
	all := []string{
		"every host computes as fast as the measured one, on equal loads; its step without a network takes no longer among others",
		fmt.Sprintf("a rank sends one message after another, %.4g us each; the ranks of a host share %.4g GB/s, and receive as fast at the same time; no two hosts share a link", 1e6*r.Link.Latency, r.Link.Bandwidth/1e9),
		"left out: the CPUs' time for the network and its buffers, congestion, slow or failing hosts, checkpoints",
	}
	if r.Strong {
		all = append(all, "strong scaling: FLOP/s do not fall with fewer tokens a host")
	}
	all = append(all, "replicated parameters: FP32 gradients reduce-scattered and weights all-gathered directly between hosts, behind nothing; optimizer state sharded over all ranks")
	if r.Model.MoELayers() == 0 {
		return all
	}
	row := "in the type of the activations"
	if r.Wire == ep.MXFP8 {
		row = "in MXFP8"
	}
	limit := ""
	if r.Model.TopKGroups < r.Model.Groups {
		limit = fmt.Sprintf(" within %d of %d groups", r.Model.TopKGroups, r.Model.Groups)
	}
	hosts, choices := r.remote(r.mostEP())
	all = append(all,
		fmt.Sprintf("routing is uniform%s: among %d hosts a token goes to %.2f others, once to each, %s, and comes back once for each of %.2f choices there", limit, r.mostEP(), hosts, row, choices),
		r.overlap())
	return append(all, fmt.Sprintf("at most %d hosts share the experts; more are replicas, which send rows of products to where gradients of weights are computed, behind nothing, and divide their experts' optimizer state and products, expert by expert: with more replicas than a rank has experts, others wait", r.mostEP()))
}

func (r Recipe) overlap() string {
	switch {
	case r.Hidden != nil:
		return fmt.Sprintf("%.0f %% of every exchange of tokens is hidden", 100**r.Hidden)
	case r.Model.SharedExperts == 0:
		return "nothing hides the exchange of tokens: the model has no shared experts"
	}
	return "dispatch and combine's backward pass are hidden as far as the shared experts' products of the layer take as long; combine and dispatch's backward pass are not"
}
