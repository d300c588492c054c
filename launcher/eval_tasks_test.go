package main

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"spmoe/launcher/cli"
)

// writeTasks writes a file of each form to the current folder.
func writeTasks(t *testing.T) (files string) {
	t.Helper()
	for name, text := range map[string]string{
		"words.jsonl":     `{"text": "rank 1 sends 3 rows, or more, to rank 2"}` + "\n" + `{"text": "// New returns a new"}` + "\n",
		"endings.jsonl":   `{"activity_label": "Ranks", "ctx_a": "A rank sends.", "ctx_b": "the rows", "endings": ["arrive.", "sing [x] songs."], "label": "0"}` + "\n",
		"questions.jsonl": `{"question": "What?", "choices": {"text": ["rows", "é"], "label": ["A", "B"]}, "answerKey": "A"}` + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return "words.jsonl,endings.jsonl,questions.jsonl"
}

// eval --tasks gives the same scores for a run and for the Hugging Face model made of it, on any
// number of ranks.
func TestEvalTasks(t *testing.T) {
	trainedRun(t)
	files := writeTasks(t)
	succeed(t, "convert", "--from", "runs/run", "--to", "model", "--dtype", "fp32")
	var want map[string]any
	for _, line := range []string{"", "-np 2 --batch 1", "--checkpoint model --precision fp32 --seq 32 -np 4"} {
		var got map[string]any
		out := succeed(t, append([]string{"eval", "--json", "--tasks", files}, strings.Fields(line)...)...)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		compareTasks(t, line, got["tasks"].([]any), want["tasks"].([]any))
	}
	out := succeed(t, "eval", "--tasks", "words.jsonl", "--tasks", "questions.jsonl")
	for _, want := range []string{"words       LAMBADA   2", "perplexity", "questions   ARC       1", "acc_bytes", "1 continuation of words lost the beginning"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func compareTasks(t *testing.T, line string, got, want []any) {
	t.Helper()
	if len(got) != 3 {
		t.Fatalf("%q: %v", line, got)
	}
	for i := range got {
		x, y := got[i].(map[string]any), want[i].(map[string]any)
		for k := range x["metrics"].([]any) {
			a, b := x["metrics"].([]any)[k].(map[string]any), y["metrics"].([]any)[k].(map[string]any)
			if v, w := a["value"].(float64), b["value"].(float64); a["name"] != b["name"] || !(math.Abs(v-w) <= 1e-5*w) {
				t.Errorf("%q, task %v: %v, want %v", line, x["task"], a, b)
			}
		}
	}
}

func TestEvalTasksErrors(t *testing.T) {
	trainedRun(t)
	writeTasks(t)
	if err := os.WriteFile("text.jsonl", []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"eval --tasks words.jsonl --data x":       {"leave out --data"},
		"eval --tasks words.jsonl --max-tokens 9": {"leave out --data, --data-field and --max-tokens"},
		"eval --tasks none.jsonl":                 {"none.jsonl", "no such file"},
		"eval --tasks text.jsonl":                 {"text.jsonl", "line 1", "LAMBADA", "HellaSwag", "ARC"},
		"eval --tasks endings.jsonl --seq 4":      {"task endings, item 1", "longer --seq"},
		"eval --tasks words.jsonl --seq 5000":     {"--seq is 5000"},
		"eval --tasks words.jsonl --batch 0":      {"--batch is 0"},
	} {
		refuse(t, cli.ExitUsage, strings.Fields(line), want...)
	}
}
