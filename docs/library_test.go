package docs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestLibrary: the program in library.md is the one in the repository, and it trains.
func TestLibrary(t *testing.T) {
	guide, err := os.ReadFile("library.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("library/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "```go\n"+string(program)+"```\n") {
		t.Error("the program in docs/library.md is not docs/library/main.go")
	}
	out, err := exec.Command("go", "run", "./library").CombinedOutput()
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
