package checkpoint

// The names of folders and files. Readers construct them from step and rank and never follow a name
// in a file.

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	manifestName  = "manifest.json"
	configName    = "config.toml"
	tokenizerName = "tokenizer.json"

	// A folder that a newer checkpoint of the same step replaces, until that one is in place.
	// Readers know it, so that a crash between the two renames does not lose the step.
	replacedSuffix = ".replaced"
	// A folder that is being written, and one that Prune is deleting: both hidden.
	tempSuffix   = ".tmp"
	prunedSuffix = ".pruned"
	// A damaged folder that was set aside; a number follows if the name is taken.
	badSuffix = ".bad"
)

func stepName(step int64) string { return fmt.Sprintf("step-%08d", step) }

// hiddenName is a name that readers ignore.
func hiddenName(step int64, suffix string) string { return "." + stepName(step) + suffix }

// parseStep returns the step of a checkpoint folder, and whether name is the name of one.
func parseStep(name string) (step int64, ok bool) {
	name = strings.TrimSuffix(name, replacedSuffix)
	digits, _ := strings.CutPrefix(name, "step-")
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, err == nil && step >= 0 && name == stepName(step)
}

// parseHidden is the inverse of hiddenName for one suffix.
func parseHidden(name, suffix string) (step int64, ok bool) {
	visible, hidden := strings.CutPrefix(name, ".")
	visible, suffixed := strings.CutSuffix(visible, suffix)
	step, ok = parseStep(visible)
	return step, ok && hidden && suffixed && name == hiddenName(step, suffix)
}

func shardName(rank, ranks int) string {
	return fmt.Sprintf("rank-%05d-of-%05d.safetensors", rank, ranks)
}

// receiptName returns the name of the file with a rank's part of the manifest, for the rank that
// commits.
func receiptName(rank, ranks int) string {
	return fmt.Sprintf("rank-%05d-of-%05d.receipt", rank, ranks)
}
