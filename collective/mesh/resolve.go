package mesh

// From the degrees that a user gives to a layout, and the rules on the way.

import "fmt"

// Degrees are what a user gives. 0 leaves a degree to its default: 1 in general, for DPShard the
// ranks that remain, and for EP all of DPShard · CP · TP. -1 does so for DPShard and EP.
type Degrees struct {
	PP, DPReplicate, DPShard, CP, TP, EP int
}

// Model is what a layout must fit. 0 means that a number is unknown or that there is none.
type Model struct {
	Experts int // routed experts per layer
	Batch   int // sequences per step
}

// Rule is a rule that a legal layout keeps.
type Rule string

const (
	RuleDegree  Rule = "a degree is 1 or more"                          // or 0 or -1, for its default
	RuleSharers Rule = "cp and tp are powers of two"                    // sums over ranks are binary trees
	RuleWorld   Rule = "world = pp · dp_replicate · dp_shard · cp · tp" // each rank has one place
	RuleEP      Rule = "ep divides dp_shard · cp · tp"                  // efsdp is their ratio
	RuleExperts Rule = "ep divides the number of routed experts"        // ranks hold equal numbers
	RuleBatch   Rule = "dp_replicate · dp_shard divides the batch"      // ranks read equal numbers
)

// Error says which rule degrees break.
type Error struct {
	Rule    Rule
	Given   string // what breaks it
	Instead string // what to use instead
	Nearest Layout // the nearest legal layout; the zero Layout if no layout helps
}

// Error returns what breaks the rule, the rule, and what to use instead.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s): %s", e.Given, e.Rule, e.Instead) }

// Resolve returns the layout of a number of ranks for a model. If the degrees break a rule, it
// returns an [Error] with the nearest legal layout.
func Resolve(world int, d Degrees, of Model) (Layout, error) {
	if world < 1 {
		return Layout{}, &Error{Rule: RuleDegree, Given: fmt.Sprintf("world is %d", world), Instead: "use 1 rank or more"}
	}
	for _, rule := range [...]func(int, Degrees) *Error{degreesCount, sharesSequences, fillsWorld} {
		if err := rule(world, d); err != nil {
			return Layout{}, err.suggest(world, d, of)
		}
	}
	l := Layout{World: world, PP: max(d.PP, 1), DPReplicate: max(d.DPReplicate, 1), DPShard: d.DPShard, EP: d.EP}
	if d.CP > 1 {
		l.CP = d.CP
	}
	if d.TP > 1 {
		l.TP = d.TP
	}
	if l.DPShard < 1 {
		l.DPShard = world / l.PP / l.DPReplicate / l.Sharers()
	}
	if l.EP < 1 {
		l.EP = l.Shards()
	}
	if err := l.divides(of); err != nil {
		return Layout{}, err.suggest(world, d, of)
	}
	if err := l.checkBatch(of.Batch); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// degreesCount refuses degrees below 1, other than those that mean a default.
func degreesCount(_ int, d Degrees) *Error {
	for _, one := range [...]struct {
		axis          string
		degree, least int
	}{{"pp", d.PP, 0}, {"dp_replicate", d.DPReplicate, 0}, {"dp_shard", d.DPShard, -1}, {"cp", d.CP, 0}, {"tp", d.TP, 0}, {"ep", d.EP, -1}} {
		if one.degree < one.least {
			return &Error{Rule: RuleDegree, Given: fmt.Sprintf("%s is %d", one.axis, one.degree)}
		}
	}
	return nil
}

// sharesSequences refuses a cp or tp with which sums over ranks would have other bits.
func sharesSequences(_ int, d Degrees) *Error {
	if d.CP > 1 && d.CP&(d.CP-1) != 0 {
		return &Error{Rule: RuleSharers, Given: fmt.Sprintf("cp is %d", d.CP)}
	}
	if d.TP > 1 && d.TP&(d.TP-1) != 0 {
		return &Error{Rule: RuleSharers, Given: fmt.Sprintf("tp is %d", d.TP)}
	}
	return nil
}

// fillsWorld refuses degrees whose product is not the number of ranks. It divides instead of
// multiplying, so no degree overflows.
func fillsWorld(world int, d Degrees) *Error {
	pp, replicate, shard := max(d.PP, 1), max(d.DPReplicate, 1), d.DPShard
	stage, what := world/pp, fmt.Sprintf("%d ranks", world)
	if pp > 1 {
		what = fmt.Sprintf("%d ranks of a stage, of %d stages", stage, pp)
	}
	if world%pp != 0 {
		return &Error{Rule: RuleWorld, Given: fmt.Sprintf("pp %d does not divide a world of %d", pp, world)}
	}
	for _, shared := range [...]struct {
		axis   string
		degree int
	}{{"cp", max(d.CP, 1)}, {"tp", max(d.TP, 1)}} {
		if stage%shared.degree != 0 {
			return &Error{Rule: RuleWorld, Given: fmt.Sprintf("%s %d does not divide %s", shared.axis, shared.degree, what)}
		}
		if stage /= shared.degree; shared.degree > 1 {
			what = fmt.Sprintf("%d groups of %s %d ranks", stage, shared.axis, shared.degree)
		}
	}
	switch {
	case stage%replicate != 0:
		return &Error{Rule: RuleWorld, Given: fmt.Sprintf("dp_replicate %d does not divide %s", replicate, what)}
	case shard > 0 && stage/replicate != shard:
		return &Error{Rule: RuleWorld, Given: fmt.Sprintf("dp_replicate %d · dp_shard %d is not %s", replicate, shard, what)}
	}
	return nil
}

// divides refuses an ep that does not divide what is sharded over it.
func (l Layout) divides(of Model) *Error {
	switch {
	case l.Shards()%l.EP != 0:
		given := fmt.Sprintf("ep %d does not divide dp_shard %d", l.EP, l.DPShard)
		if l.CP > 1 {
			given += fmt.Sprintf(" · cp %d", l.CP)
		}
		if l.TP > 1 {
			given += fmt.Sprintf(" · tp %d", l.TP)
		}
		return &Error{Rule: RuleEP, Given: given}
	case of.Experts > 0 && of.Experts%l.EP != 0:
		return &Error{Rule: RuleExperts, Given: fmt.Sprintf("ep %d does not divide %d experts", l.EP, of.Experts)}
	}
	return nil
}

// checkBatch returns an error if the sequences of a step cannot be divided evenly. All layouts of a
// number of ranks, stages, cp and tp divide a batch alike, so it suggests another batch.
func (l Layout) checkBatch(batch int) *Error {
	n := l.Batch()
	if batch < 1 || batch%n == 0 {
		return nil
	}
	return &Error{Rule: RuleBatch, Given: fmt.Sprintf("dp_replicate %d · dp_shard %d does not divide a batch of %d sequences", l.DPReplicate, l.DPShard, batch),
		Instead: fmt.Sprintf("the nearest legal batch is %d", max((batch+n/2)/n, 1)*n)}
}

// suggest completes an error with the nearest legal layout, unless no layout of these ranks divides
// the batch.
func (e *Error) suggest(world int, d Degrees, of Model) *Error {
	near := nearest(world, d, of.Experts)
	if near.checkBatch(of.Batch) != nil {
		e.Instead = fmt.Sprintf("no layout of %d ranks divides a batch of %d sequences either", world, of.Batch)
		return e
	}
	e.Nearest, e.Instead = near, "the nearest legal layout is "+near.String()
	if d.PP > 1 && near.PP == 1 {
		e.Instead = "the nearest legal layout is pp 1, " + near.String()
	}
	return e
}
