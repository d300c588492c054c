package projection

// The number of ranks and nodes that a token's choices reach: closed forms for forced and for
// uniform routing.

import (
	"math"
)

// The routing modes.
const (
	RoundRobin = "round_robin" // token i chooses experts k·i to k·i+k-1, as in runs with forced balance
	// distinct experts, all equally likely, within the group limit if the model has one
	Uniform = "uniform"
	Natural = "natural" // uniform, with a named imbalance
)

// Routings lists the modes.
func Routings() []string { return []string{RoundRobin, Uniform, Natural} }

// Spread is the distribution of the copies of a token.
type Spread struct {
	Ranks       float64 // distinct ranks that a token visits, including its own
	RemoteNodes float64 // distinct nodes other than its own
	Choices     float64 // copies without removing duplicates: top-k
	RemoteShare float64 // share of those copies that leave the node
}

// distinctPlaces returns the expected number of groups of size each, of n in total, that k distinct
// members hit. Drawing without replacement misses a group with probability C(n·each - each, k) /
// C(n·each, k).
func distinctPlaces(n, each, k int) float64 { return float64(n) * (1 - missing(n*each, each, k)) }

// distinctLimited is the same if the members lie in groups, and only keep of these, equally likely,
// may be visited. Each of the n places is a whole part of a group, or consists of several whole
// groups.
func distinctLimited(n, each, k, groups, keep int) float64 {
	if keep >= groups || n*each%groups != 0 {
		return distinctPlaces(n, each, k)
	}
	group := n * each / groups
	if each <= group { // a place lies within a group
		return float64(n) * float64(keep) / float64(groups) * (1 - missing(keep*group, each, k))
	}
	// A place has several groups: it is hit through those that may be visited.
	inside, missed := each/group, 0.0
	for j := 0; j <= min(inside, keep); j++ {
		missed += hypergeometric(groups, inside, keep, j) * missing(keep*group, j*group, k)
	}
	return float64(n) * (1 - missed)
}

// missing returns the probability that k of n distinct members hit none of m.
func missing(n, m, k int) float64 {
	p := 1.0
	for i := range k {
		p *= max(float64(n-m-i), 0) / float64(n-i)
	}
	return p
}

// hypergeometric returns the probability that a draw without replacement of drawn items, from n
// items with good successes among them, has exactly j successes.
func hypergeometric(n, good, drawn, j int) float64 {
	return math.Exp(choose(good, j) + choose(n-good, drawn-j) - choose(n, drawn))
}

// choose returns the logarithm of a binomial coefficient.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// spread returns the spread of a run whose expert-parallel group has ep ranks, perNode of them in a
// node (or an NVLink domain).
func (r Run) spread(m Model, perNode int) (Spread, error) {
	ep := r.EP
	nodes := max(1, (ep+perNode-1)/perNode)
	inNode := min(ep, perNode)
	each := m.Experts / ep
	s := Spread{Choices: float64(m.TopK), RemoteShare: 1 - 1/float64(nodes)}
	switch r.Routing {
	case RoundRobin:
		s.Ranks, s.RemoteNodes = roundRobinSpread(m.Experts, m.TopK, each, each*inNode, ep, nodes)
	case Uniform, Natural:
		s.Ranks = distinctLimited(ep, each, m.TopK, m.Groups, m.TopKGroups)
		// By symmetry the token's own node is as likely as any other.
		visited := distinctLimited(nodes, m.Experts/nodes, m.TopK, m.Groups, m.TopKGroups)
		s.RemoteNodes = visited * float64(nodes-1) / float64(nodes)
	default:
		return s, oneOf("routing", r.Routing, Routings())
	}
	return s, nil
}

// imbalance returns the load of the fullest rank over the mean.
func (r Run) imbalance() float64 {
	if r.Routing == Natural {
		return r.Imbalance
	}
	return 1
}

// roundRobinSpread counts the ranks and remote nodes of a token over one period of the pattern.
// Tokens come from all nodes alike.
func roundRobinSpread(experts, k, perRank, perNode, ranks, nodes int) (distinct, remote float64) {
	period := experts / gcd(experts, k)
	for i := range period {
		seenRank, seenNode := map[int]bool{}, map[int]bool{}
		for j := range k {
			e := (i*k + j) % experts
			seenRank[e/perRank], seenNode[e/perNode] = true, true
		}
		distinct += float64(len(seenRank))
		remote += float64(len(seenNode)) * float64(nodes-1) / float64(nodes)
	}
	return distinct / float64(period), remote / float64(period)
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
