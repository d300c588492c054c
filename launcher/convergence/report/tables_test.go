package report

import (
	"bytes"
	"encoding/csv"
	"math"
	"strconv"
	"testing"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
)

// rowsOf reads a table back, by the names of its columns.
func rowsOf(t *testing.T, r convergence.Result, name string) (rows []map[string]string) {
	t.Helper()
	for _, table := range tables(r) {
		if table.name != name {
			continue
		}
		list, err := csv.NewReader(bytes.NewReader(table.csv())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, cells := range list[1:] {
			row := map[string]string{}
			for i, column := range list[0] {
				row[column] = cells[i]
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTables(t *testing.T) {
	r := sample(sampleRecipes, 2, 30)
	r.Arms[2].Name = `a "quoted", name`
	r.Arms[0].Runs[0].Log.Steps[3].Loss = record.Number(math.NaN())
	r.Arms[1].Runs[0].Log.Quantized[0] = record.Quantized{
		Step: 1, Layer: 4, Linear: "experts.down_proj", Tensor: record.Gradient, Format: "e5m2", Elements: 1000, Signal: 200, Noise: 2, Saturated: 3, Flushed: 50,
	}

	steps := rowsOf(t, r, "steps.csv")
	if len(steps) != 3*2*30 {
		t.Fatalf("%d steps", len(steps))
	}
	if steps[3]["loss"] != "" {
		t.Errorf("a loss that is none is %q", steps[3]["loss"])
	}
	i := 0
	for _, arm := range r.Arms {
		for _, run := range arm.Runs {
			for _, s := range run.Log.Steps {
				row := steps[i]
				i++
				if row["arm"] != arm.Name || row["seed"] != strconv.FormatUint(run.Seed, 10) || row["step"] != strconv.Itoa(s.Step) {
					t.Fatalf("row %d is %v", i, row)
				}
				if i != 4 && number(t, row["loss"]) != float64(s.Loss) || number(t, row["grad_norm"]) != float64(s.GradNorm) ||
					number(t, row["lr"]) != s.LR || number(t, row["imbalance"]) != s.Imbalance || number(t, row["seconds"]) != s.Seconds {
					t.Fatalf("row %d is %v, want %+v", i, row, s)
				}
			}
		}
	}

	q := rowsOf(t, r, "quantisation.csv")[0]
	for column, want := range map[string]string{
		"arm": "mxfp8", "seed": "1", "step": "1", "layer": "4", "linear": "experts.down_proj", "tensor": "gradient", "format": "e5m2",
		"sqnr_db": "20", "saturated_share": "0.003", "flushed_share": "0.05",
	} {
		if q[column] != want {
			t.Errorf("quantisation.csv: %s is %q, want %q", column, q[column], want)
		}
	}

	summary := rowsOf(t, r, "summary.csv")
	if len(summary) != 3 || summary[0]["train_difference"] != "" || summary[0]["verdict"] != "baseline" {
		t.Errorf("summary.csv: %v", summary)
	}
	d := r.Arms[1].HeldOut
	for column, want := range map[string]float64{
		"held_out_difference": d.Mean, "held_out_difference_sd": d.SD, "held_out_ci95_low": d.CI95[0], "held_out_ci95_high": d.CI95[1],
		"held_out_ci90_low": d.CI90[0], "held_out_ci90_high": d.CI90[1], "held_out_tost_p": d.P, "tokens_per_second": r.Arms[1].Speed,
		"held_out_loss": float64(r.Arms[1].Runs[0].HeldOut+r.Arms[1].Runs[1].HeldOut) / 2,
	} {
		if got := number(t, summary[1][column]); got != want {
			t.Errorf("summary.csv: %s is %v, want %v", column, got, want)
		}
	}

	router := rowsOf(t, r, "router.csv")
	if a := r.Arms[1].Agreement; len(router) != 2*len(a) || number(t, router[1]["shared_choices"]) != a[1].Share || router[1]["layer"] != strconv.Itoa(a[1].Layer) {
		t.Errorf("router.csv has %d rows, such as %v", len(router), router[1])
	}
}

// With one seed there is a difference, but no interval and no test.
func TestSummaryOfOneSeed(t *testing.T) {
	row := rowsOf(t, sample(sampleRecipes, 1, 30), "summary.csv")[1]
	if row["train_difference"] == "" || row["train_ci95_low"] != "" || row["train_tost_p"] != "" {
		t.Errorf("%v", row)
	}
}
