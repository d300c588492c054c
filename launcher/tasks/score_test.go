package tasks

import (
	"errors"
	"math"
	"testing"

	"spmoe/datasets"
)

const questions = `{"question": "Which is it?", "choices": {"text": ["kite", "a drum of é", "lamps"], "label": ["A", "B", "C"]}, "answerKey": "B"}
{"question": "?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"}
{"question": "A much longer question than the others?", "choices": {"text": ["yes", "no", "perhaps", "never"], "label": ["1", "2", "3", "4"]}, "answerKey": "4"}
`

func load(t *testing.T, text string, length int) Loaded {
	t.Helper()
	task, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	task.Name = "test"
	all, err := Load([]Task{task}, &Encoder{Tokenizer: datasets.Bytes{}, Context: length})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// logSoftmax returns the logarithm of a token's probability, and whether it is the likeliest one.
func logSoftmax(logits []float32, token int32) (logarithm float64, best bool) {
	var z float64
	best = true
	for _, x := range logits {
		z += math.Exp(float64(x))
		best = best && x <= logits[token]
	}
	return float64(logits[token]) - math.Log(z), best
}

// Scores follow from the logits of each text alone. They depend neither on the number of ranks nor
// on the batch, also where a rank has nothing to do.
func TestScores(t *testing.T) {
	task := load(t, questions, 48)
	var want []score
	onRanks(t, 1, 48, 256, func(m *member) error {
		for _, r := range task.requests {
			mark := m.ex.Mark()
			logits, err := m.model.Logits(m.ex, r.tokens[:len(r.tokens)-1], len(r.tokens)-1)
			if err != nil {
				return err
			}
			s := score{greedy: true}
			for at := len(r.tokens) - r.scored; at < len(r.tokens); at++ {
				x, best := logSoftmax(logits.Index(at-1).F32(), r.tokens[at])
				s.loglikelihood, s.greedy = s.loglikelihood+x, s.greedy && best
			}
			want = append(want, s)
			m.ex.Release(mark)
		}
		return nil
	})
	for _, ranks := range []int{1, 2, 4} {
		for _, batch := range []int{1, 2, 100} {
			onRanks(t, ranks, 48, 256, func(m *member) error {
				got, err := m.scorer(batch).score(task.requests)
				for i := range got {
					if math.Abs(got[i].loglikelihood-want[i].loglikelihood) > 1e-4 || got[i].greedy != want[i].greedy {
						t.Errorf("%d ranks, batch %d, request %d: %v, want %v", ranks, batch, i, got[i], want[i])
					}
				}
				return err
			})
		}
	}
}

// A continuation that the model would write itself is greedy.
func TestGreedy(t *testing.T) {
	onRanks(t, 1, 32, 256, func(m *member) error {
		tokens := []int32{'a', 'b', 'c'}
		for range 3 {
			logits, err := m.model.Logits(m.ex, tokens, len(tokens))
			if err != nil {
				return err
			}
			next := int32(0)
			for id, x := range logits.Index(len(tokens) - 1).F32() {
				if x > logits.Index(len(tokens) - 1).F32()[next] {
					next = int32(id)
				}
			}
			tokens = append(tokens, next)
		}
		other := append([]int32(nil), tokens...)
		other[4] ^= 1
		got, err := m.scorer(4).score([]request{{tokens: tokens, scored: 3}, {tokens: other, scored: 3}, {tokens: other, scored: 1}})
		if err == nil && (!got[0].greedy || got[1].greedy) {
			t.Errorf("%v", got)
		}
		return err
	})
}

func TestStop(t *testing.T) {
	task, stop := load(t, questions, 48), errors.New("stop")
	onRanks(t, 2, 48, 256, func(m *member) error {
		s := m.scorer(1)
		s.Stop = func() error { return stop }
		if _, err := task.Run(s); !errors.Is(err, stop) {
			t.Errorf("%v", err)
		}
		return nil
	})
}

func TestRun(t *testing.T) {
	task := load(t, questions, 20)
	onRanks(t, 2, Longest([]Loaded{task}), 256, func(m *member) error {
		r, err := task.Run(m.scorer(3))
		if err == nil && (r.Task != "test" || r.Form != "ARC" || r.Items != 3 || r.Truncated != 7 || len(r.Metrics) != 3) {
			t.Errorf("%+v", r)
		}
		return err
	})
}

// Metrics of scores for which each rule picks another choice.
func TestMetrics(t *testing.T) {
	scores := []score{{-2, false}, {-4, false}, {-4.5, false}} // per character -1, -0.8, -0.64; per byte -1, -0.4, -0.64
	for answer, want := range []string{"acc", "acc_bytes", "acc_norm"} {
		it := Item{Choices: []string{"ab", "ééééé", "abcdefg"}, Answer: answer}
		task := Loaded{Task: Task{Items: []Item{it, it}}}
		// in the second item the first choice is the best by all rules
		for _, m := range task.chosen(append(scores[:3:3], score{-0.1, false}, score{-9, false}, score{-9, false})) {
			ones := 0.0
			if m.Name == want {
				ones++
			}
			if answer == 0 {
				ones++
			}
			if m.Value != ones/2 || math.Abs(m.StdErr-math.Sqrt(ones/2*(1-ones/2))) > 1e-15 {
				t.Errorf("choice %d is right: %+v, want %g of 2", answer, m, ones)
			}
		}
	}
	if first := best([]score{{-1, false}, {-1, false}}, func(int) int { return 1 }); first != 0 {
		t.Errorf("of equal choices, number %d is the best", first)
	}
	if none := best([]score{{-1, false}, {math.NaN(), false}}, func(int) int { return 1 }); none != -1 {
		t.Errorf("with a score that is no number, choice %d is the best", none)
	}
	words := continued([]score{{-1, true}, {-3, false}, {-2, false}})
	if words[0].Value != 1.0/3 || math.Abs(words[0].StdErr-1.0/3) > 1e-15 || math.Abs(words[1].Value-math.Exp(2)) > 1e-12 {
		t.Errorf("%+v", words)
	}
}
