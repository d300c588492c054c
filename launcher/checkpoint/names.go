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

// stepDir is a folder with the name of a checkpoint, or of what was or was to become one.
type stepDir struct {
	name   string
	step   int64
	suffix string // one of those above, or none
}

// parseName returns the folder with a name, and whether it is the name of one.
func parseName(name string) (d stepDir, ok bool) {
	visible, hidden := strings.CutPrefix(name, ".")
	digits, _ := strings.CutPrefix(visible, "step-")
	suffix := ""
	if dot := strings.IndexByte(digits, '.'); dot >= 0 {
		digits, suffix = digits[:dot], digits[dot:]
	}
	step, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || step < 0 || visible != stepName(step)+suffix {
		return d, false
	}
	switch bad, _, _ := strings.Cut(strings.TrimPrefix(suffix, replacedSuffix), "-"); {
	case suffix == "", suffix == replacedSuffix:
		ok = !hidden
	case suffix == tempSuffix, suffix == prunedSuffix:
		ok = hidden
	case bad == badSuffix:
		ok = !hidden
		suffix = badSuffix
	}
	return stepDir{name, step, suffix}, ok
}

// parseStep returns the step of a checkpoint folder that readers know, and whether name is the name
// of one.
func parseStep(name string) (step int64, ok bool) {
	d, ok := parseName(name)
	return d.step, ok && (d.suffix == "" || d.suffix == replacedSuffix)
}

func shardName(rank, ranks int) string {
	return fmt.Sprintf("rank-%05d-of-%05d.safetensors", rank, ranks)
}

// receiptName returns the name of the file with a rank's part of the manifest, for the rank that
// commits.
func receiptName(rank, ranks int) string {
	return fmt.Sprintf("rank-%05d-of-%05d.receipt", rank, ranks)
}
