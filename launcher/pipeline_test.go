package main

import (
	"encoding/json"
	"testing"

	"spmoe/launcher/cli"
)

// A run in stages, with the defaults of everything else, leaves a checkpoint that generate and eval
// use without stages. They repeat the run's own sample and validation loss. One rank cannot
// continue it, and the error names the number that can.
func TestPipelinedRunIsUsed(t *testing.T) {
	done := trainedRun(t, "-np", "4", "--pp", "2", "--set", "pp_schedule=ZBVZeroBubble", "--batch", "16", "--set", "model.layers=4", "--set", "sample_tokens=20")
	one := texts(t, "--prompt", "// New returns ", "--max-tokens", "20", "--endless", "--slide")[0]
	if one["text"] != done["sample"] || one["text"] == "" {
		t.Errorf("%v, the sample of the run is %q", one, done["sample"])
	}
	var loss struct{ Loss float64 }
	if err := json.Unmarshal([]byte(succeed(t, "eval", "--json")), &loss); err != nil {
		t.Fatal(err)
	}
	if loss.Loss == 0 || loss.Loss != done["last_held_out_loss"] {
		t.Errorf("eval gives %v, the run ended with %v", loss.Loss, done["last_held_out_loss"])
	}
	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--steps", "100"}, "pp 2 does not divide 1 ranks", "the run had -np 4")
}
