package tasks

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/tensor"
)

// recorded is what testdata/harness.py has printed.
type recorded struct {
	Tasks map[string]struct {
		Items, Truncated int
		Metrics          map[string]float64
		Scores           [][][2]any // of each item, of each choice: log-likelihood, greedy
	}
}

// The scores of a trained model are those of an independent implementation of the harness's rules
// and of the model, and so are the numbers.
func TestAgainstHarness(t *testing.T) {
	paths, err := filepath.Glob("testdata/recorded-*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%q, %v", paths, err)
	}
	all, scores, results := scoreTestdata(t)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var want recorded
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if len(want.Tasks) != len(all) {
			t.Errorf("%s has %d tasks, want %d", path, len(want.Tasks), len(all))
		}
		for i, task := range all {
			w := want.Tasks[task.Name]
			if r := results[i]; r.Items != w.Items || r.Truncated != w.Truncated {
				t.Errorf("%s, %s: %d items and %d truncated, want %d and %d", path, task.Name, r.Items, r.Truncated, w.Items, w.Truncated)
			}
			compareMetrics(t, path+", "+task.Name, results[i].Metrics, w.Metrics)
			got := scores[i]
			for item, choices := range w.Scores {
				for choice, s := range choices {
					if d := math.Abs(got[0].loglikelihood - s[0].(float64)); !(d < 1e-4) || got[0].greedy != s[1] {
						t.Errorf("%s, %s, item %d, choice %d: %v, want %v", path, task.Name, item+1, choice+1, got[0], s)
					}
					got = got[1:]
				}
			}
		}
	}
}

// scoreTestdata scores the tasks in testdata with its model, in FP32, on two ranks.
func scoreTestdata(t *testing.T) (all []Loaded, scores [][]score, results []Result) {
	source, err := weights.OpenHuggingFace("testdata/model")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	tokenizer, err := source.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := Read([]string{"testdata/words.jsonl,testdata/endings.jsonl", "testdata/questions.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	if all, err = Load(tasks, &Encoder{Tokenizer: tokenizer, Context: source.Config().MaxPositions}); err != nil {
		t.Fatal(err)
	}
	err = collective.NewWorld(2).Run(func(c *collective.Comm) error {
		model, err := moe.NewInference(source.Config(), moe.Unquantized(tensor.FP32), Longest(all), c, nil)
		if err != nil {
			return err
		}
		m := &member{c, tensor.NewExec(), model}
		if err := source.Load(m.ex, m.model); err != nil {
			return err
		}
		for i := range all {
			s, err := m.scorer(8).score(all[i].requests)
			if err != nil {
				return err
			}
			r, err := all[i].Run(m.scorer(8))
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				scores, results = append(scores, s), append(results, r)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, scores, results
}

func compareMetrics(t *testing.T, of string, got []Metric, want map[string]float64) {
	t.Helper()
	for _, m := range got {
		w, ok := want[m.Name]
		if !ok || !(math.Abs(m.Value-w) <= 1e-5*w) {
			t.Errorf("%s: %s is %v, want %v", of, m.Name, m.Value, w)
		}
		if w, ok := want[m.Name+"_stderr"]; ok && math.Abs(m.StdErr-w) > 1e-9 {
			t.Errorf("%s: the standard error of %s is %v, want %v", of, m.Name, m.StdErr, w)
		}
		delete(want, m.Name)
	}
	for name := range want {
		if !strings.HasSuffix(name, "_stderr") {
			t.Errorf("%s: there is no %s", of, name)
		}
	}
}
