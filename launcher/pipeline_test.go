package main

import (
	"encoding/json"
	"testing"
)

// A run in stages, with the defaults of everything else, leaves a checkpoint that generate and eval
// use without stages. They repeat the run's own sample and validation loss.
func TestPipelinedRunIsUsed(t *testing.T) {
	done := trainedRun(t, "-np", "4", "--pp", "2", "--pp-schedule", "ZBVZeroBubble", "--batch", "16", "--model.layers", "4", "--sample-tokens", "20")
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
}
