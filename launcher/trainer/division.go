package trainer

// How experts and sequences divide among ranks.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/collective"
)

// divides returns an error if experts or sequences do not divide evenly among ranks. It names all
// that must change, and the numbers of ranks that need no other change.
func (c Config) divides(ranks int) error {
	experts := c.routedExperts()
	l, err := c.Layout(ranks)
	uneven, short := err == nil && l.EP == ranks && experts%ranks != 0, c.Batch < 1 || c.Batch%ranks != 0
	use, good := "", c.rankCounts(experts)
	if len(good) > 0 {
		use = "use -np " + orList(good)
	}
	nextBatch := max(1, (c.Batch+ranks-1)/ranks) * ranks
	switch {
	case uneven && short && use != "":
		return fmt.Errorf("-np %d: %[1]d ranks divide neither %d experts nor a batch of %d: %s", ranks, experts, c.Batch, use)
	case uneven:
		others := slices.DeleteFunc(divisorsOf(experts), func(n int) bool { return slices.Contains(good, n) })
		if len(others) > 0 {
			use = strings.TrimPrefix(use+", or", ", or")
			use += fmt.Sprintf(" -np %s with a --batch that it divides", orList(others))
		}
		return fmt.Errorf("-np %d: %[1]d ranks do not divide %d experts: %s", ranks, experts, strings.TrimSpace(use))
	case short && use != "" && ranks > 1:
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, such as %d, or %s", c.Batch, ranks, nextBatch, use)
	case short:
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, such as %d", c.Batch, ranks, nextBatch)
	}
	return nil
}

// rankCounts lists the numbers of ranks that divide both experts, unless there are none, and the
// batch.
func (c Config) rankCounts(experts int) (all []int) {
	if c.Batch < 1 {
		return nil
	}
	for _, n := range divisorsOf(max(experts, 0)) {
		if c.Batch%n == 0 {
			all = append(all, n)
		}
	}
	if experts == 0 {
		for n := 1; n <= min(c.Batch, collective.MaxRanks); n++ {
			if c.Batch%n == 0 {
				all = append(all, n)
			}
		}
	}
	return all
}

// divisorsOf lists the divisors of n that can be a number of ranks.
func divisorsOf(n int) (all []int) {
	for d := 1; d <= min(n, collective.MaxRanks); d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// orList joins numbers as a sentence does, the first ten of them: "1, 2 or 4".
func orList(numbers []int) string {
	const most = 10
	var words []string
	for _, n := range numbers[:min(len(numbers), most)] {
		words = append(words, strconv.Itoa(n))
	}
	if len(numbers) > most {
		words = slices.Concat(words[:most-1], []string{strconv.Itoa(numbers[len(numbers)-1])})
	}
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
