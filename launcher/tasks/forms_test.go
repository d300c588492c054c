package tasks

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The texts that the harness makes of lines in each form.
func TestForms(t *testing.T) {
	for line, want := range map[string]Item{
		`{"text": "Anna flies her kite"}`:     {"Anna flies her", []string{"kite"}, 0},
		`{"text": "two  spaces", "other": 1}`: {"two ", []string{"spaces"}, 0},
		`{"text": "ends "}`:                   {"ends", []string{""}, 0},
		`{"text": "word"}`:                    {"", []string{"word"}, 0},

		`{"ctx": "She", "endings": ["runs [a] away", " [title] stops"], "label": 1}`:                              {"She", []string{"runs away", " stops"}, 1},
		`{"activity_label": "At sea", "ctx_a": "A boat.", "ctx_b": "the SAIL", "endings": ["x"], "label": "0"}`:   {"At sea: A boat. The sail", []string{"x"}, 0},
		`{"activity_label": " How", "ctx_a": "Tie [title] it.", "ctx_b": "", "endings": ["a","b"], "label": "0"}`: {"How: Tie. it.", []string{"a", "b"}, 0},

		`{"question": "Why?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}`: {"Question: Why?\nAnswer:", []string{"a", "b"}, 1},
	} {
		task, err := parse([]byte("\n" + line + "\n\n"))
		if err != nil || len(task.Items) != 1 || !reflect.DeepEqual(task.Items[0], want) {
			t.Errorf("%s: %+v, %v; want %+v", line, task.Items, err, want)
		}
	}
}

func TestFormErrors(t *testing.T) {
	const arcLine = `{"question": "Why?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "A"}`
	for text, want := range map[string]string{
		"":                             "no lines: expected JSON lines",
		`{"texts": "a b"}`:             `line 1: expected JSON lines with "text"`,
		`{"text": ""}`:                 "line 1, in the form of LAMBADA: the text is empty",
		`{"text": "a"`:                 "line 1: offset",
		`{"text": 5}`:                  "line 1: offset",
		arcLine + "\n{\"text\":\"a\"}": "line 2 is in the form of LAMBADA, earlier ones are in that of ARC",
		`{"question": "Why?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"}`:      `answerKey is "B"`,
		`{"question": "Why?", "choices": {"text": ["a"], "label": ["A"]}}`:                        `no "answerKey"`,
		`{"question": "Why?", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "A"}`: `as many "text" as "label"`,
		`{"ctx": "a", "endings": ["b"], "label": ""}`:                                             `label is ""`,
		`{"ctx": "a", "endings": ["b"], "label": 1}`:                                              `label is "1": expected the index of the right one of 1`,
		`{"ctx_a": "a", "endings": ["b"], "label": 0}`:                                            `expected the context in "ctx"`,
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a.jsonl", "b.jsonl", "sub/a.json"} {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o777)
		if err := os.WriteFile(path, []byte(`{"text": "a b"}`), 0o666); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	all, err := Read(paths[:2])
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := Read(paths); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Errorf("two files of one name: %v", err)
	}
	if _, err := Read([]string{filepath.Join(dir, "c.jsonl")}); err == nil || !strings.Contains(err.Error(), "c.jsonl") {
		t.Errorf("no file: %v", err)
	}
}

// Every text that parses is a task with items whose answers exist.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"text": "a b"}`))
	f.Add([]byte(`{"ctx": "a", "endings": ["b", "[c]"], "label": "1"}`))
	f.Add([]byte(`{"question": "a", "choices": {"text": ["b"], "label": ["A"]}, "answerKey": "A"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		task, err := parse(text)
		if err != nil {
			return
		}
		for _, it := range task.Items {
			if it.Answer < 0 || it.Answer >= len(it.Choices) {
				t.Errorf("answer %d of %d", it.Answer, len(it.Choices))
			}
		}
	})
}

// What Python 3.11 makes of texts.
func TestPython(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "the End": "The end", "éCOLE": "École", "ßtraße": "Sstraße", "ΑΣ ΣΑΣ": "Ας σας", "ǆUNGLA": "ǅungla",
		" The": " the", "1st PLACE": "1st place", "İSTANBUL": "İstanbul", "ŉ A": "ʼN a",
	} {
		if got := capitalize(text); got != want {
			t.Errorf("capitalize(%q) is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"\x1c a b\x1f\u2003": "a b", "\u200b x": "\u200b x", "\u0085 x\u00a0": "x"} {
		if got := strip(text); got != want {
			t.Errorf("strip(%q) is %q, want %q", text, got, want)
		}
	}
}
