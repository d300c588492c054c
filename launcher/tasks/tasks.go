// Package tasks scores a model on questions with known answers, by the log-likelihood of the
// answers. A task is a JSONL file in the form of LAMBADA, HellaSwag or ARC. Texts, tokens and
// scores follow the rules of EleutherAI's lm-evaluation-harness for its tasks lambada_openai,
// hellaswag, arc_easy and arc_challenge, without examples in the context. So the numbers can be
// compared.
package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
)

// Task is the content of a file.
type Task struct {
	Name  string // the file's name without its extension
	Form  string // of its lines: LAMBADA, HellaSwag or ARC
	Items []Item
}

// Item is a question: a text, and one or several texts that continue it.
type Item struct {
	Context string
	Choices []string // without the space before them
	Answer  int      // the index of the right choice
}

// continuation returns what follows the context if the model picks choice i.
func (it *Item) continuation(i int) string { return " " + it.Choices[i] }

// Limits on the size of a file and on the number of files.
const (
	mostBytes = 256 << 20
	mostFiles = 256
)

// Read reads files, whose names must differ. A path may be several, separated by commas. Its errors
// are user errors.
func Read(paths []string) ([]Task, error) {
	var all []Task
	seen := map[string]string{}
	if len(paths) > 0 {
		paths = strings.Split(strings.Join(paths, ","), ",")
	}
	if len(paths) > mostFiles {
		return nil, fmt.Errorf("%d files of tasks: give at most %d", len(paths), mostFiles)
	}
	for _, path := range paths {
		task, err := read(path)
		if err != nil {
			return nil, err
		}
		if other, ok := seen[task.Name]; ok {
			return nil, fmt.Errorf("%s and %s have the same name: rename one, results are listed by name", other, path)
		}
		seen[task.Name] = path
		all = append(all, task)
	}
	return all, nil
}

func read(path string) (Task, error) {
	text, err := system.ReadFile(path, mostBytes)
	if err != nil {
		return Task{}, fmt.Errorf("tasks: %w", err)
	}
	base := filepath.Base(path)
	task, err := parse(text)
	if err != nil {
		return Task{}, fmt.Errorf("%s: %w", path, err)
	}
	task.Name = strings.TrimSuffix(base, filepath.Ext(base))
	return task, nil
}

// parse parses the lines of a file, all of one form.
func parse(text []byte) (task Task, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var r row
		if err := strictjson.Unmarshal(line, &r); err != nil {
			return task, fmt.Errorf("line %d: %w", number, err)
		}
		f, err := r.form()
		if err != nil {
			return task, fmt.Errorf("line %d: %w", number, err)
		}
		if task.Form != "" && task.Form != f.name {
			return task, fmt.Errorf("line %d is in the form of %s, earlier ones are in that of %s: give one form per file", number, f.name, task.Form)
		}
		item, err := f.item(r)
		if err != nil {
			return task, fmt.Errorf("line %d, in the form of %s: %w", number, f.name, err)
		}
		task.Form, task.Items = f.name, append(task.Items, item)
	}
	if len(task.Items) == 0 {
		return task, errors.New("no lines: " + expected)
	}
	return task, nil
}
