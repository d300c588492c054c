package main

// The losses of runs, as means over 50 steps each, and what follows from their course.

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"spmoe/launcher/convergence"
	"spmoe/launcher/record"
)

// span is the number of steps whose losses a row is the mean of.
const span = 50

// lossesFile is the name of a study's file of losses.
const lossesFile = "losses.csv.gz"

// courses are the losses of runs by arm and seed, one per span of steps.
type courses map[string]map[uint64][]float64

// writeLosses writes the losses of the finished runs in folder: arm, seed, the last step of a span
// and the mean training loss of its steps, in nats per token.
func writeLosses(folder, path string) (err error) {
	records, err := filepath.Glob(filepath.Join(folder, "*", "seed-*", record.File))
	if err != nil || len(records) == 0 {
		return errors.Join(err, fmt.Errorf("%s has no ARM/seed-N/%s: give the folder of a comparison", folder, record.File))
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	packed, _ := gzip.NewWriterLevel(file, gzip.BestCompression)
	rows := csv.NewWriter(packed)
	rows.Write([]string{"arm", "seed", "step", "loss"})
	for _, r := range records {
		run := filepath.Dir(r)
		l, err := record.Read(run)
		if err != nil {
			return err
		}
		if l.Done == nil {
			continue
		}
		seed := filepath.Base(run)[len("seed-"):]
		for at := 0; at < len(l.Steps); at += span {
			steps := l.Steps[at:min(at+span, len(l.Steps))]
			mean := 0.0
			for _, s := range steps {
				mean += float64(s.Loss) / float64(len(steps))
			}
			rows.Write([]string{filepath.Base(filepath.Dir(run)), seed, strconv.Itoa(at + len(steps)), fmt.Sprintf("%.6f", mean)})
		}
	}
	rows.Flush()
	return errors.Join(rows.Error(), packed.Close(), file.Close())
}

// readLosses reads what writeLosses wrote.
func readLosses(path string) (courses, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	rows, err := csv.NewReader(packed).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := courses{}
	for _, row := range rows[1:] {
		seed, err := strconv.ParseUint(row[1], 10, 64)
		loss, err2 := strconv.ParseFloat(row[3], 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if all[row[0]] == nil {
			all[row[0]] = map[uint64][]float64{}
		}
		all[row[0]][seed] = append(all[row[0]][seed], loss)
	}
	return all, nil
}

// mean returns the mean course of an arm and of the baseline over the seeds that both have.
func (c courses) mean(base, arm string) (baseline, other []float64, seeds int) {
	for seed, losses := range c[arm] {
		b := c[base][seed]
		if len(b) != len(losses) {
			continue
		}
		if seeds++; baseline == nil {
			baseline, other = make([]float64, len(b)), make([]float64, len(b))
		}
		for i := range b {
			baseline[i] += b[i]
			other[i] += losses[i]
		}
	}
	for i := range baseline {
		baseline[i] /= float64(seeds)
		other[i] /= float64(seeds)
	}
	return baseline, other, seeds
}

// gap returns by how much an arm's mean loss is above the baseline's in each span, in percent.
func gap(baseline, other []float64) (percent []float64) {
	for i, b := range baseline {
		percent = append(percent, 100*(other[i]/b-1))
	}
	return percent
}

// stepsBehind returns how many steps before its end the baseline had the arm's final loss, by lines
// between the middles of spans. It is 0 if the arm ends lower.
func stepsBehind(baseline, other []float64) float64 {
	last := len(baseline) - 1
	for i := last; i > 0; i-- {
		if a, b := baseline[i-1], baseline[i]; other[last] <= b {
			return span * float64(last-i)
		} else if other[last] <= a {
			return span * (float64(last-i) + (other[last]-b)/(a-b))
		}
	}
	return span * float64(last)
}

// writeCourses prints the gaps of all arms over the course of a run, and how many tokens earlier
// the baseline had an arm's final loss. It draws the gaps of each study whose losses are there.
func writeCourses(w io.Writer, read map[string]convergence.Result) error {
	fmt.Fprintln(w, "\n| study | arm | gap in % by eighths of the run | steps, M tokens behind |\n|---|---|---|---|")
	for _, study := range studies {
		r, ok := read[study]
		if !ok {
			continue
		}
		c, err := readLosses(filepath.Join(results, study, lossesFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // without it: of a time when the losses of steps were not kept
			return err
		}
		perStep := float64(r.Setup.Batch*r.Setup.Seq) / 1e6
		var lines []line
		for _, a := range r.Arms[1:] {
			fmt.Fprintf(w, "| %s | %s |", study, a.Name)
			for _, window := range a.Course {
				fmt.Fprintf(w, " %+.2f", 100*window.Mean)
			}
			fmt.Fprint(w, " |")
			if baseline, other, seeds := c.mean(r.Arms[0].Name, a.Name); seeds > 0 {
				behind := stepsBehind(baseline, other)
				fmt.Fprintf(w, " %.0f, %.2f of %.2f", behind, behind*perStep, float64(r.Setup.Steps)*perStep)
				lines = append(lines, line{a.Name, gap(baseline, other), span * perStep})
			}
			fmt.Fprintln(w, " |")
		}
		if lines == nil {
			continue
		}
		if err := drawCourses(filepath.Join(results, study, "gap.svg"), lines); err != nil {
			return err
		}
	}
	return nil
}
