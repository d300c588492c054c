package report_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/export"
	"spmoe/launcher/report/page"
)

// set gives a field of a step a value that is not 0.
func set(field reflect.Value, x int) {
	switch {
	case field.CanInt():
		field.SetInt(int64(x))
	case field.CanFloat():
		field.SetFloat(float64(x))
	case field.Kind() == reflect.Bool:
		field.SetBool(true)
	}
}

// Every field of a step belongs to a declared quantity. Without one, no output would show it.
func TestDeclared(t *testing.T) {
	for i := range reflect.TypeFor[record.Step]().NumField() {
		name := reflect.TypeFor[record.Step]().Field(i).Name
		var s record.Step
		set(reflect.ValueOf(&s).Elem().Field(i), 1e9)
		declared := slices.ContainsFunc(record.Quantities, func(q record.Quantity) bool { return q.Of(&s) != 0 })
		if declared == slices.Contains([]string{"Steps", "Skipped"}, name) { // the latter is counted in SkippedTotal
			t.Errorf("%s: declared in record.Quantities: %v", name, declared)
		}
	}
}

// Every output has the quantities whose declarations name it.
func TestOutputs(t *testing.T) {
	run := t.TempDir()
	w, err := record.Open(run, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(record.Start{CPU: "some CPU", Tier: "avx2", Cores: 1, Ranks: 1, Tokens: 100, FLOPs: 1e6, Peak: 1e9})
	var s record.Step
	for step := 1; step <= 3; step++ {
		for i := range reflect.TypeOf(s).NumField() {
			set(reflect.ValueOf(&s).Elem().Field(i), step+i)
		}
		s.Step = step
		w.Step(s)
		w.Load(record.Load{Step: step, Layer: 1, Tokens: []int64{1, 2}})
	}
	board := export.OpenTensorBoard(run)
	for _, write := range []func() error{
		w.Close, board.Update, board.Close,
		func() error { return page.WriteRun(run, 0) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	var console, lines bytes.Buffer
	report.Console{W: &console}.Step(s)
	report.JSON{W: &lines}.Step(s)
	for _, q := range record.Quantities {
		for _, output := range []struct{ name, prefix, suffix, text string }{
			{q.Console, "  ", ": ", console.String()},
			{q.JSON, `"`, `":`, lines.String()},
			{q.TensorBoard, "", "", read(t, run, export.TensorBoardFolder+"/*")},
			{q.Title, "", "", read(t, run, "*.html")},
			{q.Figure, `"id":"`, `"`, read(t, run, page.File)},
		} {
			if output.name != "" && !strings.Contains(output.text, output.prefix+output.name+output.suffix) {
				t.Errorf("%q is not in\n%.2000q", output.prefix+output.name+output.suffix, output.text)
			}
		}
	}
}

// read returns the texts of the files of a folder whose names match a pattern.
func read(t *testing.T, folder, pattern string) (text string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no file %s (%v)", pattern, err)
	}
	for _, path := range paths {
		part, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text += string(part)
	}
	return text
}
