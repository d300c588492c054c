package tasks

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Result is the result of a task. The names of its numbers are the harness's.
type Result struct {
	Task  string `json:"task"`
	Form  string `json:"form"`
	Items int    `json:"items"`
	// Truncated is the number of continuations whose context was too long.
	Truncated int `json:"truncated"`
	// NotFinite is the number of continuations with a score that is no number. They are wrong.
	NotFinite int      `json:"not_finite,omitempty"`
	Metrics   []Metric `json:"metrics"`
}

// Metric is a number of a result.
type Metric struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	StdErr float64 `json:"stderr,omitempty"` // of the mean over the items; 0: not known
}

// Perplexity is the name of the metric that is not a share of the items: e to the mean of the
// negative log-likelihoods of the continuations.
const Perplexity = "perplexity"

// Loaded is a task with its tokens.
type Loaded struct {
	Task
	requests []request
}

// Load encodes tasks. Its errors are user errors.
func Load(all []Task, e *Encoder) ([]Loaded, error) {
	var loaded []Loaded
	for _, task := range all {
		l := Loaded{Task: task}
		for i := range task.Items {
			requests, err := e.requests(&task.Items[i])
			if err != nil {
				return nil, fmt.Errorf("task %s, item %d: %w", task.Name, i+1, err)
			}
			l.requests = append(l.requests, requests...)
		}
		loaded = append(loaded, l)
	}
	return loaded, nil
}

// Longest returns the number of inputs of the longest text of the tasks.
func Longest(all []Loaded) (longest int) {
	for _, t := range all {
		for _, r := range t.requests {
			longest = max(longest, len(r.tokens)-1)
		}
	}
	return longest
}

// Run scores a task. It is collective and returns the same result on all ranks.
func (t *Loaded) Run(s *Scorer) (Result, error) {
	scores, err := s.score(t.requests)
	if err != nil {
		return Result{}, fmt.Errorf("task %s: %w", t.Name, err)
	}
	r := Result{Task: t.Name, Form: t.Form, Items: len(t.Items)}
	for _, request := range t.requests {
		if request.cut {
			r.Truncated++
		}
	}
	for _, s := range scores {
		if math.IsNaN(s.loglikelihood) || math.IsInf(s.loglikelihood, 0) {
			r.NotFinite++
		}
	}
	if t.Form == nameLambada {
		r.Metrics = continued(scores)
	} else {
		r.Metrics = t.chosen(scores)
	}
	return r, nil
}

// continued returns the metrics of items with a single continuation each.
func continued(scores []score) []Metric {
	var greedy mean
	var sum float64
	for _, s := range scores {
		greedy.add(s.greedy)
		sum += s.loglikelihood
	}
	return []Metric{greedy.metric("acc"), {Name: Perplexity, Value: math.Exp(-sum / float64(len(scores)))}}
}

// chosen returns the metrics of items with several choices. acc picks the choice with the largest
// log-likelihood, acc_norm the one with the largest per character, acc_bytes per byte of UTF-8. The
// first of equal ones counts, and the space before a choice does not.
func (t *Loaded) chosen(scores []score) []Metric {
	var plain, perCharacter, perByte mean
	for i := range t.Items {
		it := &t.Items[i]
		mine := scores[:len(it.Choices)]
		scores = scores[len(mine):]
		plain.add(it.Answer == best(mine, func(int) int { return 1 }))
		perCharacter.add(it.Answer == best(mine, func(i int) int { return utf8.RuneCountInString(it.Choices[i]) }))
		perByte.add(it.Answer == best(mine, func(i int) int { return len(it.Choices[i]) }))
	}
	return []Metric{plain.metric("acc"), perCharacter.metric("acc_norm"), perByte.metric("acc_bytes")}
}

// best returns the index of the largest log-likelihood per unit of length; -1 if one is no number.
func best(scores []score, length func(i int) int) (at int) {
	var top float64
	for i, s := range scores {
		x := s.loglikelihood / float64(length(i))
		if math.IsNaN(x) {
			return -1
		}
		if i == 0 || x > top {
			at, top = i, x
		}
	}
	return at
}

// mean is the mean of numbers that are 0 or 1.
type mean struct{ ones, all float64 }

func (m *mean) add(one bool) {
	m.all++
	if one {
		m.ones++
	}
}

// metric returns the mean with its standard error, from the sample's standard deviation.
func (m *mean) metric(name string) Metric {
	p := m.ones / m.all
	metric := Metric{Name: name, Value: p}
	if m.all > 1 {
		metric.StdErr = math.Sqrt(p * (1 - p) / (m.all - 1))
	}
	return metric
}
