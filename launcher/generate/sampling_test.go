package generate

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// logits are the logarithms of weights.
func logits(weights ...float64) []float32 {
	all := make([]float32, len(weights))
	for i, w := range weights {
		all[i] = float32(math.Log(w))
	}
	return all
}

// Tokens come as often as their probabilities say, by a chi-square test of 20000 draws: what is
// drawn depends on the seed alone, so that the test never fails by chance.
func TestFrequencies(t *testing.T) {
	half := &sampler{Sampling: Sampling{Temperature: 1, TopP: 0.5}}
	if n := len(half.choices(logits(1, 1), 0)); n != 1 {
		t.Errorf("of two tokens of the same probability, %d have a half of it", n)
	}
	scores := logits(4, 1, 8, 2, 1, 16, 0.5, 0.5)
	for name, c := range map[string]struct {
		Sampling
		want []float64
	}{
		"plain":                        {Sampling{Temperature: 1, TopP: 1}, []float64{4, 1, 8, 2, 1, 16, 0.5, 0.5}},
		"cool":                         {Sampling{Temperature: 0.5, TopP: 1}, []float64{16, 1, 64, 4, 1, 256, 0.25, 0.25}},
		"hot":                          {Sampling{Temperature: 2, TopP: 1}, []float64{2, 1, math.Sqrt(8), math.Sqrt2, 1, 4, math.Sqrt(0.5), math.Sqrt(0.5)}},
		"top-k":                        {Sampling{Temperature: 1, TopK: 3, TopP: 1}, []float64{4, 0, 8, 0, 0, 16, 0, 0}},
		"top-k, a tie":                 {Sampling{Temperature: 1, TopK: 5, TopP: 1}, []float64{4, 1, 8, 2, 0, 16, 0, 0}},
		"top-k of more than there are": {Sampling{Temperature: 1, TopK: 99, TopP: 1}, []float64{4, 1, 8, 2, 1, 16, 0.5, 0.5}},
		"top-p":                        {Sampling{Temperature: 1, TopP: 0.7}, []float64{0, 0, 8, 0, 0, 16, 0, 0}},
		"top-p, a tie":                 {Sampling{Temperature: 1, TopP: 0.93}, []float64{4, 1, 8, 2, 0, 16, 0, 0}},
		"top-p of almost all":          {Sampling{Temperature: 1, TopP: 0.98}, []float64{4, 1, 8, 2, 1, 16, 0.5, 0}},
		"top-p of one":                 {Sampling{Temperature: 1, TopP: 0.1}, []float64{0, 0, 0, 0, 0, 16, 0, 0}},
		"top-p of top-k":               {Sampling{Temperature: 1, TopK: 3, TopP: 0.8}, []float64{0, 0, 8, 0, 0, 16, 0, 0}},
		"top-p when hot":               {Sampling{Temperature: 2, TopP: 0.5}, []float64{0, 0, math.Sqrt(8), 0, 0, 4, 0, 0}},
		"greedy":                       {Sampling{Temperature: 0, TopP: 1}, []float64{0, 0, 0, 0, 0, 1, 0, 0}},
		"the best one":                 {Sampling{Temperature: 1, TopK: 1, TopP: 1}, []float64{0, 0, 0, 0, 0, 1, 0, 0}},
		"very cool":                    {Sampling{Temperature: 1e-300, TopP: 1}, []float64{0, 0, 0, 0, 0, 1, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			const draws = 20000
			var total float64
			for _, w := range c.want {
				total += w
			}
			s := &sampler{Sampling: c.Sampling}
			s.Seed = 11
			counts := make([]int, len(scores))
			for i := range draws {
				token, ok := s.draw(scores, i%7, i/7)
				if !ok {
					t.Fatal("nothing was drawn")
				}
				counts[token]++
			}
			var chi2 float64
			free := -1
			for i, n := range counts {
				expected := draws * c.want[i] / total
				if expected == 0 {
					if n > 0 {
						t.Errorf("token %d came %d times, never expected: %v", i, n, counts)
					}
					continue
				}
				chi2 += (float64(n) - expected) * (float64(n) - expected) / expected
				free++
			}
			// The mean of the distribution is free and its deviation sqrt(2·free).
			if bound := float64(free) + 4*math.Sqrt(2*float64(free)); chi2 > bound {
				t.Errorf("%v of %v: chi-square is %.1f, at most %.1f expected", counts, c.want, chi2, bound)
			}
		})
	}
}

// What is drawn is a function of scores, seed, text and position; each of these changes it.
func TestDrawsAreCounted(t *testing.T) {
	scores := logits(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	drawn := func(seed uint64, text, from int) []int32 {
		s := &sampler{Sampling: Sampling{Temperature: 1, TopP: 1, Seed: seed}}
		var all []int32
		for i := range 32 {
			token, _ := s.draw(scores, text, from+i)
			all = append(all, token)
		}
		return all
	}
	base := drawn(1, 0, 0)
	if !slices.Equal(base, drawn(1, 0, 0)) || !slices.Equal(base[5:], drawn(1, 0, 5)[:27]) {
		t.Error("the same position has two tokens")
	}
	for name, other := range map[string][]int32{"seed": drawn(2, 0, 0), "text": drawn(1, 1, 0), "position": drawn(1, 0, 1)} {
		same := 0
		for i, v := range other {
			if v == base[i] {
				same++
			}
		}
		if same > 8 {
			t.Errorf("with another %s %d of 32 tokens are the same", name, same)
		}
	}
}

// Of equal scores the lower token is the better, and scores that are not numbers are none.
func TestSpecialScores(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		scores []float32
		token  int32
		ok     bool
	}{
		"a tie":           {[]float32{1, 3, 3, 2}, 1, true},
		"not a number":    {[]float32{1, nan, 3}, 0, false},
		"the first is":    {[]float32{nan, 1}, 0, false},
		"infinite":        {[]float32{1, inf}, 0, false},
		"impossible ones": {[]float32{-inf, -5, -inf}, 1, true},
		"none possible":   {[]float32{-inf, -inf}, 0, false},
		"none":            {nil, 0, false},
	} {
		for _, temperature := range []float64{0, 1e-9} {
			s := &sampler{Sampling: Sampling{Temperature: temperature, TopK: 1, TopP: 1}}
			if token, ok := s.draw(c.scores, 0, 0); token != c.token || ok != c.ok {
				t.Errorf("%s: %d, %t, want %d, %t", name, token, ok, c.token, c.ok)
			}
		}
	}
	impossible := &sampler{Sampling: Sampling{Temperature: 1, TopP: 1}}
	for i := range 100 {
		if token, ok := impossible.draw([]float32{-inf, 0, -inf, 0, -inf}, 0, i); !ok || token%2 == 0 {
			t.Fatalf("an impossible token %d was drawn", token)
		}
	}
}

func TestSamplingValidate(t *testing.T) {
	for want, s := range map[string]Sampling{
		"":                         {Temperature: 0.7, TopP: 0.9, TopK: 40},
		"the temperature is -1":    {Temperature: -1, TopP: 1},
		"the temperature is NaN":   {Temperature: math.NaN(), TopP: 1},
		"the temperature is +Inf":  {Temperature: math.Inf(1), TopP: 1},
		"top-k is -2: give 0":      {TopK: -2, TopP: 1},
		"top-p is 0: give more":    {},
		"top-p is 1.5: give more":  {TopP: 1.5},
		"top-p is NaN: give more ": {TopP: math.NaN()},
	} {
		err := s.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}
