package trainer

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
)

const taskLines = `{"text": "rank 2 sends 3 rows. rank 1 sends 5"}
{"text": "rank 3 sends rows"}
{"text": "rank 0 sends a great number of rows. rank 1 sends 5"}
`

const endingLines = `{"ctx": "rank 2", "endings": ["sends 3 rows.", "sings", "rows"], "label": 0}
{"ctx": "rank 1 sends", "endings": ["5 rows.", "rank"], "label": "0"}
`

// withTasks adds two tasks to a run.
func withTasks(t *testing.T, cfg *config.Config) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"words.jsonl": taskLines, "endings.jsonl": endingLines} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cfg.EvalTasks = []string{filepath.Join(dir, "words.jsonl"), filepath.Join(dir, "endings.jsonl")}
}

// Each evaluation has the results of the tasks, with the same bits in every layout, also with an
// MTP module and in stages. The steps of the run are those of one without tasks.
func TestEvalTasks(t *testing.T) {
	base := tiny(t, func(c *config.Config) { c.EvalEvery, c.MicroBatch, c.Model.MTPLayers = 2, 4, 1 })
	without := train(t, base, 1, "")
	var want []events.Eval
	for _, l := range []mesh.Layout{
		{World: 1, PP: 1, DPReplicate: 1, DPShard: 1, EP: 1},
		{World: 2, PP: 1, DPReplicate: 1, DPShard: 2, EP: 2},
		{World: 2, PP: 2, DPReplicate: 1, DPShard: 1, EP: 1},
	} {
		cfg := base
		cfg.Out = filepath.Join(t.TempDir(), "run")
		withTasks(t, &cfg)
		cfg.SetLayout(l)
		cfg.MicroBatch /= l.Batch()
		got := train(t, cfg, l.World, "")
		if want == nil {
			want = got.evals
		}
		if !reflect.DeepEqual(got.evals, want) || len(want) != 3 {
			t.Errorf("%v: %+v, want %+v", l, got.evals, want)
		}
		if a, b := got.done[0].Train, without.done[0].Train; a != b {
			t.Errorf("%v: training loss %v with tasks, %v without", l, a, b)
		}
		log := readRecord(t, cfg)
		for i, e := range log.Evals {
			if !reflect.DeepEqual(e.Tasks, observe.RecordedTasks(want[i].Tasks)) {
				t.Errorf("%v: %+v is recorded, want %+v", l, e.Tasks, want[i].Tasks)
			}
		}
	}
	words, endings := want[0].Tasks[0], want[0].Tasks[1]
	if words.Task != "words" || words.Items != 3 || words.Truncated != 2 || len(words.Metrics) != 2 || endings.Form != "HellaSwag" ||
		len(endings.Metrics) != 3 {
		t.Errorf("%+v", want[0].Tasks)
	}
	if first, last := words.Metrics[1].Value, want[2].Tasks[0].Metrics[1].Value; !(last < first) {
		t.Errorf("perplexity %g at the start, %g at the end", first, last)
	}
}

func TestEvalTasksErrors(t *testing.T) {
	cfg := tiny(t, nil)
	path := filepath.Join(t.TempDir(), "x.jsonl")
	cfg.EvalTasks = []string{path}
	if _, err := Prepare(cfg, 1, "", &reports{}); err == nil || !strings.Contains(err.Error(), "eval_tasks: ") ||
		!strings.Contains(err.Error(), "x.jsonl") {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"text": "a `+strings.Repeat("b", 40)+`"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(cfg, 1, "", &reports{}); err == nil || !strings.Contains(err.Error(), "task x, item 1") {
		t.Errorf("a word longer than the context: %v", err)
	}
}
