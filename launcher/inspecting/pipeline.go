package inspecting

// inspect --pp: the schedule of a pipeline, its bubbles and the passes in flight.

import (
	"fmt"
	"io"

	"spmoe/collective/pipeline"
	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// printPipeline prints what the schedule loses to bubbles, and with lists what each rank does.
func printPipeline(out io.Writer, cfg config.Config, ranks int, lists bool) error {
	s, stages, err := cfg.Pipeline(ranks)
	if err != nil {
		return err
	}
	t, err := s.Simulate()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\npipeline: %s, %s, %s, %d micro-batches; bubble %.1f%% of all ranks' time, if F, I and W of all stages take the same time\n",
		s.Name, report.Plural(cfg.PP, "rank"), report.Plural(s.Stages, "stage"), s.Microbatches, 100*t.Bubble())
	table := cli.NewTable(out, "rank of the pipeline", "layers", "idle", "in flight")
	for rank := range s.Ranks {
		table.Row(fmt.Sprint(rank), layersOf(s, stages, rank), cli.Percent(t.Idle[rank], t.End), fmt.Sprint(t.InFlight[rank]))
	}
	fmt.Fprintln(out, "  in flight: the most passes of a stage and a micro-batch whose activations a rank holds")
	if !lists {
		return nil
	}
	fmt.Fprintln(out, "\nactions of each rank: stage, F forward, B backward, I and W its halves, micro-batch; a dot is a bubble")
	for rank, list := range s.Ranks {
		fmt.Fprintf(out, "%3d ", rank)
		for _, slot := range list {
			text := slot.String()
			if text == "" {
				text = "."
			}
			fmt.Fprintf(out, " %-4s", text)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// layersOf lists the layers of a rank's stages: "0-3,12-15".
func layersOf(s *pipeline.Schedule, stages []moe.Stage, rank int) (text string) {
	for stage, holder := range s.Holders() {
		if layers := stages[stage]; holder == rank && layers.End > layers.First {
			if text != "" {
				text += ","
			}
			text += fmt.Sprintf("%d-%d", layers.First, layers.End-1)
		}
	}
	return text
}
