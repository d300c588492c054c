// Package examples runs the commands of README.md and of the tutorial, shortened.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// shortened replaces parts of commands, so that all take about a minute. Each part must occur.
var shortened = []struct{ old, new string }{
	{"git clone <this repository> && cd spmoe", ":"}, // this clone
	{"go install ./launcher", ":"},                   // the test has built it
	{"go test ./...", ":"},                           // a step of its own in .ci/run
	{"go run ./launcher", "launcher"},
	{"-np 8 train ", "-np 8 train --steps 3 --set eval_sequences=8 --set sample_tokens=8 "},
	{"--flavor small --data", "--flavor small --steps 1 --batch 2 --seq 64 --set eval_sequences=2 --set sample_tokens=2 --data"},
	{"--spares 1 train  ", "--spares 1 train --steps 2 --batch 8 --seq 64 --set eval_sequences=8 --set sample_tokens=2 "},
	{"-np 8 compare ", "-np 8 compare --quick --steps 4 --seeds 2 --set eval_sequences=8 || [ $? = 3 ] "}, // undecided
	{"--quick --seeds 3 --precision bf16,bf16+optimizer.lr=3e-3 --out runs/rates", "--quick --steps 4 --seeds 2 --set eval_sequences=8 " +
		"--precision bf16,bf16+optimizer.lr=3e-3 --out runs/rates || [ $? = 3 ]"}, // undecided
	{"docs/recipes/five-minutes-2-cores.sh", "sed -E 's/--steps [0-9]+/--steps 4/; s/--seq [0-9]+/--seq 64/; " +
		"s/--batch [0-9]+/--batch 4/; s/warmup [0-9]+/warmup 1/; s/--vocab [0-9]+/--vocab 300/; " +
		"s/--max-tokens [0-9]+/--max-tokens 8/; s/eval_sequences=[0-9]+/eval_sequences=2/' " +
		"$ROOT/docs/recipes/five-minutes-2-cores.sh >short.sh\nsh short.sh ~/text"},
	{"--steps 300 --seq 256", "--steps 4 --seq 64 --batch 4 --set eval_sequences=2 --set sample_tokens=8"},
	{"eval --checkpoint runs/first", "eval --checkpoint runs/first --max-tokens 128"},
	{"--data ~/text --steps 100", "--data ~/text --steps 2 --batch 4 --seq 64 --set eval_sequences=2 --set sample_tokens=2"},
	{"train --steps 2000 --out runs/tough &", "train --steps 30 --batch 8 --seq 64 --set eval_sequences=8 --set sample_tokens=2 --out runs/tough &\n" +
		"until [ $(pgrep -f runs/tough | wc -l) -ge 6 ]; do sleep 0.1; done"},
	{"kill -9 $(pgrep -f runs/tough | sed -n 3p)", "kill -9 $(pgrep -f runs/tough | sed -n 3p)\nwait $!"},
}

var program = regexp.MustCompile(`^((launcher|go|git|make) |docs/recipes/)`)

// scripts returns the code blocks of a Markdown file that begin with a program of this repository.
// Others are output, or Python.
func scripts(t *testing.T, name string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	var block []string
	for line := range strings.Lines(string(text) + "\n") {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			block = append(block, code)
			continue
		}
		if len(block) > 0 && program.MatchString(block[0]) {
			all = append(all, strings.Join(block, ""))
		}
		block = nil
	}
	if len(all) == 0 {
		t.Fatalf("%s has no commands", name)
	}
	return all
}

// shorten applies the table, and notes which of its rows it used.
func shorten(script string, used map[string]bool) string {
	for _, s := range shortened {
		if strings.Contains(script, s.old) {
			used[s.old] = true
			script = strings.ReplaceAll(script, s.old, s.new)
		}
	}
	return script
}

var documents = []string{"README.md", "docs/tutorial.md"}

// Every row of the table belongs to a command, so that no command runs at full length by a typo.
func TestCommandsAreShortened(t *testing.T) {
	used := map[string]bool{}
	for _, name := range documents {
		for _, script := range scripts(t, name) {
			shorten(script, used)
		}
	}
	for _, s := range shortened {
		if !used[s.old] {
			t.Errorf("no command of %s has %q", strings.Join(documents, " or "), s.old)
		}
	}
}

// SPMOE_EXAMPLES=all runs the commands, which takes about a minute.
func TestCommandsRun(t *testing.T) {
	if os.Getenv("SPMOE_EXAMPLES") != "all" {
		t.Skip("set SPMOE_EXAMPLES=all")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./launcher")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, name := range documents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, bin, scripts(t, name))
		})
	}
}

// Sessions, which begin with a prompt, print what README.md shows, with "..." for lines left out.
func TestSessions(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	sessions := regexp.MustCompile(`(?m)^    \$ launcher (.*)\n((?:    .*\n)+)`).FindAllStringSubmatch(string(text), -1)
	if len(sessions) < 2 {
		t.Fatalf("README.md has %d sessions", len(sessions))
	}
	for _, session := range sessions {
		if strings.Contains(session[1], "verify-layouts") && os.Getenv("SPMOE_EXAMPLES") != "all" {
			continue // it takes half a minute
		}
		command := exec.Command("go", append([]string{"run", "./launcher"}, strings.Fields(session[1])...)...)
		command.Dir = root
		output, _ := command.Output() // check exits with 1
		from := 0
		for line := range strings.Lines(session[2]) {
			if line = strings.TrimPrefix(line, "    "); line == "...\n" {
				continue
			}
			at := strings.Index(string(output[from:]), line)
			if at < 0 {
				t.Errorf("launcher %s does not print, behind the lines before it: %s", session[1], line)
				break
			}
			from += at + len(line)
		}
	}
}

// run runs scripts one after the other in a folder of their own, with a text at home.
func run(t *testing.T, bin string, scripts []string) {
	work, home := t.TempDir(), t.TempDir()
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(home, "text"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, part := range slices.Collect(slices.Chunk(text, len(text)/8)) {
		if err := os.WriteFile(filepath.Join(home, "text", string(rune('a'+i))+".txt"), part, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(work, "script")
	for _, script := range scripts {
		script = shorten(script, map[string]bool{})
		if err := os.WriteFile(file, []byte("set -e\n"+script), 0o644); err != nil {
			t.Fatal(err)
		}
		shell := exec.Command("bash", file)
		shell.Dir = work
		shell.Env = append(os.Environ(), "HOME="+home, "ROOT="+repository, "PATH="+bin+":"+os.Getenv("PATH"))
		if output, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, script, output)
		}
	}
}
