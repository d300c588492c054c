package trainer

import (
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
)

// A rank is named when it is slow three times in a row, once, and when it keeps up again.
func TestJudgeStragglers(t *testing.T) {
	s := observed(0, 3, 3, 1)
	for i, test := range []struct {
		seconds []float64
		want    []string
	}{
		{[]float64{1, 1.1, 1.3}, nil},
		{[]float64{1, 1.1, 3}, nil},
		{[]float64{1, 1.1, 3}, nil},
		{[]float64{1, 1.1, 3}, []string{"rank 2 is slow"}},
		{[]float64{1, 1.1, 3}, nil},
		{[]float64{1, 5, 1.2}, []string{"rank 2 keeps up again"}},
		{[]float64{1, 5, 1.2}, nil},
		{[]float64{1, 1.5, 1.2}, nil},
		{[]float64{5, 1.5, 1.2}, nil},
		{[]float64{5, 1.5, 1.2}, nil},
		{[]float64{5, 1.5, 1.2}, []string{"rank 0 is slow"}},
		{[]float64{0, 0, 0}, []string{"rank 0 keeps up again"}},
		{[]float64{0.01, 0.02, 0.05}, nil}, // too little time lost
		{[]float64{0.01, 0.02, 0.05}, nil},
		{[]float64{0.01, 0.02, 0.05}, nil},
	} {
		got := s.Judge(0, test.seconds, state.Median(test.seconds), make([]float64, 3))
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
			t.Errorf("%d: %q, want %q", i, got, test.want)
		}
	}
}

// A rank that lacks a processor on a busy machine is not slow, one that computes longer is.
func TestBusyMachine(t *testing.T) {
	for name, c := range map[string]struct {
		here, threads   int
		busy, processor []float64
		slow            bool // rank 0
	}{
		"process, slow":                     {1, 1, []float64{3, 1, 1, 1}, []float64{3, 1, 1, 1}, true},
		"process, lacks a processor":        {1, 1, []float64{3, 1, 1, 1}, []float64{1, 1, 1, 1}, false},
		"process, all lack one":             {1, 1, []float64{8, 3, 4, 3}, []float64{1, 1, 1, 1}, false},
		"process, slow and all lack one":    {1, 1, []float64{8, 3, 4, 3}, []float64{3, 1, 1, 1}, true},
		"process, slow, two threads":        {1, 2, []float64{3, 1, 1, 1}, []float64{5, 1.7, 1.7, 1.7}, true},
		"process, lacks one of two threads": {1, 2, []float64{3, 1, 1, 1}, []float64{2, 2, 2, 2}, false},
		"goroutine, slow":                   {4, 1, []float64{3, 1, 1, 1}, []float64{6, 6, 6, 6}, true},
		"goroutine, slow, two threads":      {4, 2, []float64{3, 1, 1, 1}, []float64{9, 9, 9, 9}, true},
		"goroutine, lacks a processor":      {4, 1, []float64{3, 1, 1, 1}, []float64{4, 4, 4, 4}, false},
		"two hosts' worth of goroutines":    {2, 1, []float64{3, 1, 1, 1}, []float64{2, 2, 2, 2}, false},
	} {
		s := observed(0, 4, c.here, c.threads)
		var news []string
		for range observe.StragglerTimes {
			news = append(news, s.Compare(c.busy, c.processor, make([]float64, 4))...)
		}
		if slow := len(news) == 1 && strings.HasPrefix(news[0], "rank 0 is slow"); slow != c.slow || !slow && news != nil {
			t.Errorf("%s: %q", name, news)
		}
	}
}

// The alarm about a slow rank says why it is slow, and what to do.
func TestStragglerReason(t *testing.T) {
	if got := observe.Reason([]float64{0, 0}, 1); !strings.Contains(got, "--bind-to core") {
		t.Errorf("without tokens: %q", got)
	}
	var tokens []float64
	for rank := range 2 {
		s := observed(rank, 2, 1, 1)
		// 2 layers of 4 experts; the last 2 experts belong to rank 1
		s.Balancer = &state.Balancer{Experts: 4, Layers: []int{1, 2}, Routings: []moe.Routing{{Layer: 1}, {Layer: 2}}, Loads: []int64{10, 10, 40, 40, 10, 10, 40, 40}}
		for range observe.StragglerSteps - 1 {
			if err := s.After(observe.FinishedStep{}); err != nil {
				t.Fatal(err)
			}
		}
		tokens = append(tokens, s.Tokens)
	}
	if got := observe.Reason(tokens, 1); !strings.Contains(got, "its experts get 1.6 times the mean number of tokens, a higher --model.bias-speed") {
		t.Errorf("with popular experts: %q", got)
	}
	if got := observe.Reason(tokens, 0); !strings.Contains(got, "--bind-to core") {
		t.Errorf("with unpopular experts: %q", got)
	}
}

// Ranks are compared with those that have the same stages.
func TestStragglersOfStages(t *testing.T) {
	s := observed(0, 4, 4, 1)
	s.Peers = 2
	var news []string
	for range observe.StragglerTimes {
		news = append(news, s.Compare([]float64{9, 9, 1, 3}, []float64{30, 30, 30, 30}, make([]float64, 4))...)
	}
	if len(news) != 1 || !strings.HasPrefix(news[0], "rank 3 is slow") {
		t.Errorf("%q", news)
	}
}

// observed returns the detector of a rank.
func observed(rank, ranks, here, threads int) *observe.Stragglers {
	c := collective.NewWorld(ranks).Comm(rank)
	return observe.NewStragglers(observe.Links{{Comm: c}}, moe.OneGroup(c), &state.Balancer{}, nil, here, threads)
}
