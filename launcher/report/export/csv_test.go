package export

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/record"
)

// open continues the record of a run from a step.
func open(t *testing.T, run string, from int) *record.Writer {
	t.Helper()
	w, err := record.Open(run, from)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(record.Start{Step: from, Ranks: 2, Tokens: 100})
	return w
}

// add adds steps to a record, with evaluations after those that 2 divides.
func add(w *record.Writer, from, to int, tasks ...record.Task) {
	for step := from; step <= to; step++ {
		loss := record.Number(step) / 4
		if step == 3 {
			loss = record.Number(math.NaN())
		}
		if step > 0 {
			w.Step(record.Step{Step: step, Loss: loss, GradNorm: 0.5, LR: 1e-7, Imbalance: 1.5, Seconds: 0.5, Skipped: step == 3, Time: 1.8e9 + 0.125})
			w.Load(record.Load{Step: step, Layer: 1, Tokens: []int64{3}})
		}
		if step%2 == 0 {
			w.Eval(record.Eval{Step: step, Loss: 2, Sequences: 4, Tasks: tasks})
		}
		if step%3 == 0 && step > 0 {
			w.Phases(record.Phases{Step: step, Steps: 3, Seconds: 0.5, Families: map[string]float64{"waiting": 0.25, "bf16 forward": 0.25}})
		}
	}
}

func flush(t *testing.T, w *record.Writer) {
	t.Helper()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// table reads the table of a run: its rows by column.
func table(t *testing.T, run string) (rows []map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(run, CSVFile))
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, cells := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func steps(rows []map[string]string) string {
	var all []string
	for _, r := range rows {
		all = append(all, r["step"])
	}
	return strings.Join(all, " ")
}

// expect checks values of a row.
func expect(t *testing.T, row map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got, ok := row[name]; got != value || !ok {
			t.Errorf("step %s: %s is %q (%v), want %q", row["step"], name, got, ok, value)
		}
	}
}

// The table grows with the record. The last row waits for the evaluation of its step. Lines with
// more values add columns.
func TestCSVGrows(t *testing.T) {
	run := t.TempDir()
	w, to := open(t, run, 0), OpenCSV(run)
	update := func(want string) {
		t.Helper()
		flush(t, w)
		if err := to.Update(); err != nil {
			t.Fatal(err)
		}
		if got := steps(table(t, run)); got != want {
			t.Errorf("steps %q, want %q", got, want)
		}
	}
	add(w, 0, 1)
	update("0")
	add(w, 2, 2)
	update("0 1")
	before, err := os.Stat(filepath.Join(run, CSVFile))
	if err != nil {
		t.Fatal(err)
	}
	add(w, 3, 4, record.Task{Task: "words", Form: "LAMBADA", Items: 4, Metrics: map[string]record.Number{"acc": 0.25, "perplexity": 1e20}})
	update("0 1 2 3")
	if after, err := os.Stat(filepath.Join(run, CSVFile)); err != nil || os.SameFile(before, after) {
		t.Errorf("more columns do not replace the file: %v", err)
	}
	add(w, 5, 5)
	update("0 1 2 3 4")
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	rows := table(t, run)
	if steps(rows) != "0 1 2 3 4 5" {
		t.Errorf("steps %q", steps(rows))
	}
	expect(t, rows[0], map[string]string{"loss": "", "eval.loss": "2", "eval.sequences": "4", "eval.tasks.words.acc": ""})
	expect(t, rows[1], map[string]string{
		"tokens": "100", "loss": "0.25", "grad_norm": "0.5", "lr": "1e-07", "imbalance": "1.5", "seconds": "0.5", "tokens_per_second": "200",
		"skipped": "0", "mtp_loss": "0", "dropped": "0", "time": "1800000000.125", "eval.loss": "", "phases.waiting": "",
	})
	expect(t, rows[3], map[string]string{"tokens": "300", "loss": "NaN", "skipped": "1", "phases.waiting": "0.25", "phases.bf16 forward": "0.25"})
	expect(t, rows[4], map[string]string{"loss": "1", "eval.tasks.words.acc": "0.25", "eval.tasks.words.perplexity": "1e+20"})
}

// A run that goes back, in the same process or in another one, has each step once.
func TestCSVGoesBack(t *testing.T) {
	run := t.TempDir()
	w, to := open(t, run, 0), OpenCSV(run)
	add(w, 0, 5)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := to.Update(); err != nil {
		t.Fatal(err)
	}
	w = open(t, run, 2)
	add(w, 3, 3)
	flush(t, w)
	if err := to.Update(); err != nil {
		t.Fatal(err)
	}
	if got := steps(table(t, run)); got != "0 1 2" {
		t.Errorf("steps %q after the run went back", got)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	to = OpenCSV(run)
	add(w, 4, 6)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // nothing is new at the second call
		if err := to.Update(); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if rows := table(t, run); steps(rows) != "0 1 2 3 4 5 6" || rows[6]["eval.loss"] != "2" {
		t.Errorf("steps %q, the last row is %v", steps(rows), rows[6])
	}
}

// Without a record there is no table, and a folder that is gone is an error.
func TestCSVErrors(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	to := OpenCSV(run)
	if err := to.Update(); err != nil {
		t.Errorf("without a run: %v", err)
	}
	if err := to.Close(); err != nil {
		t.Errorf("without a run: %v", err)
	}
	if _, err := os.Stat(run); err == nil {
		t.Error("a folder was made")
	}
	if err := os.Mkdir(run, 0o777); err != nil {
		t.Fatal(err)
	}
	w := open(t, run, 0)
	add(w, 0, 2)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(run, CSVFile), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := OpenCSV(run).Update(); err == nil || !strings.Contains(err.Error(), CSVFile) {
		t.Errorf("a folder of that name: %v", err)
	}
}
