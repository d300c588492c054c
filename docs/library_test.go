package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibrary: the program in library.md trains.
func TestLibrary(t *testing.T) {
	guide, err := os.ReadFile("library.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(guide), "```go\n")
	program, _, _ = strings.Cut(program, "```\n")
	file := filepath.Join(t.TempDir(), "library.go")
	if err := os.WriteFile(file, []byte(program), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var losses []float64
	for line := range strings.Lines(string(out)) {
		var step int
		var loss float64
		if n, err := fmt.Sscanf(line, "step %d loss %f", &step, &loss); n != 2 {
			t.Fatalf("%q: %v", line, err)
		}
		losses = append(losses, loss)
	}
	if len(losses) != 20 || losses[0] < 5 || losses[19] > 4 {
		t.Errorf("losses %v: want 20, from about 6 to about 3", losses)
	}
}
