package main

// The page of a run of a run file.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"spmoe/launcher/record"
	"spmoe/launcher/report"
	"spmoe/launcher/report/wholerun"
	"spmoe/launcher/system"
)

// writePage writes the page. It takes no time, so it is written again by each command.
func (r *fileRun) writePage(context.Context) error {
	r.tell("page", "")
	facts, err := r.facts()
	if err != nil {
		return err
	}
	reached, expected := r.reached(), r.file.Expected
	page, err := wholerun.Run{
		Title: filepath.Base(r.file.Out), Rows: expected.Rows(reached), Missed: expected.Missed(reached), About: expected.About(),
		Stages: r.job.Entries, Facts: facts, Links: r.links(), Sample: r.done.sample, File: string(r.text),
	}.Page()
	if err != nil {
		return err
	}
	return r.write(pageFile, page)
}

// links returns the files of the run that exist.
func (r *fileRun) links() (all []wholerun.Link) {
	for _, l := range []wholerun.Link{
		{Path: modelFolder + "/report.html", About: "the training run: loss, speed, experts"},
		{Path: sampleFile, About: "the sample"},
		{Path: exported, About: "the model for Hugging Face's libraries"},
		{Path: tokensFile, About: "the tokens, which train --data reads"},
		{Path: "tokenizer.json", About: "the tokenizer"},
		{Path: modelFolder, About: "the training run's checkpoints, which generate, eval and convert read"},
	} {
		if _, err := os.Stat(r.in(l.Path)); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// facts describes the machine, the text and the measurement.
func (r *fileRun) facts() ([]wholerun.Fact, error) {
	log, err := record.Read(r.in(modelFolder))
	if err != nil {
		return nil, err
	}
	id, m := r.done.corpus, r.done.measured
	facts := []wholerun.Fact{
		{Name: "command", Value: "launcher " + shellWords(r.env.commandLine)},
		{Name: "text", Value: fmt.Sprintf("%s in %s, SHA-256 %s", system.Bytes(id.Bytes), report.Plural(id.Documents, "document"), id.SHA256)},
		{Name: "validation loss", Value: fmt.Sprintf("%.4f nats/token, standard error %.4f, %.4f bits/byte, over %s tokens", m.Loss, m.StdErr, m.BitsPerByte, report.Thousands(float64(m.Tokens)))},
	}
	var machines []string
	for _, s := range log.Starts {
		machines = append(machines, fmt.Sprintf("%s, %s, %s, from step %d on; launcher %s", s.CPU, report.Plural(s.Cores, "core"), s.Tier, s.Step+1, s.Version))
	}
	return append(facts, wholerun.Fact{Name: "machine", Value: strings.Join(machines, "\n")}), nil
}
