package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/report"
)

// asking is how a shell prints what the last of some words is completed to, once it has read the
// script.
var asking = map[string]func(script string, words []string) *exec.Cmd{
	"bash": func(script string, words []string) *exec.Cmd {
		return exec.Command("bash", append([]string{"--norc", "-c", `
			source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _launcher; printf '%s\n' "${COMPREPLY[@]}"`, script}, words...)...)
	},
	"zsh": func(script string, words []string) *exec.Cmd { // with its completion system's own functions replaced
		return exec.Command("zsh", append([]string{"-f", "-c", `
			compdef() {}; compset() {}; compadd() { shift; print -l -- ${(P)1} }
			_files() { if [[ $1 == -/ ]]; then print -l -- *(/); else print -l -- *; fi }
			source "$0"; words=("$@"); CURRENT=$#; _launcher`, script}, words...)...)
	},
	"fish": func(script string, words []string) *exec.Cmd {
		return exec.Command("fish", "--no-config", "-c", fmt.Sprintf(`source %s; complete -C %s`, report.Shell(script), report.Shell(strings.Join(words, " "))))
	},
}

// The scripts in the shells that there are, in a folder that has a file and a folder in it.
func TestCompletionScripts(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, work := t.TempDir(), t.TempDir()
	if err := os.Symlink(own, filepath.Join(bin, "launcher")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(work, "config.toml"), "")
	if err := os.Mkdir(filepath.Join(work, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	for shell, ask := range asking {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			script := write(t, filepath.Join(t.TempDir(), "script"), succeed(t, "completion", shell))
			for line, want := range map[string]string{
				"tra": "train", "-np 2 trai": "train", "train --prec": "--precision", "train --precision mxfp8-e": "mxfp8-experts", "checkpoint ver": "verify",
				"train --config conf": "config.toml", "train --out fold": "folder", "train --rel": "",
				"train --config $(>ran) --prec": "--precision", // and nothing on the line is run
			} {
				words := append([]string{"launcher"}, strings.Fields(line)...)
				cmd := ask(script, words)
				cmd.Dir = work
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), asLauncher+"=1", "HOME="+t.TempDir())
				out, err := cmd.Output()
				got := strings.Fields(strings.ReplaceAll(string(out), "/", ""))
				if err != nil || want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
					t.Errorf("%q becomes %q, want %q; %v", line, got, want, err)
				}
				if shell == "fish" && line == "tra" && !strings.Contains(string(out), "train\ttrain a model") {
					t.Errorf("%q becomes %q, without a description", line, out)
				}
				if strings.Contains(line, "--out") && slices.Contains(got, "config.toml") {
					t.Errorf("a file is suggested as a folder: %q", got)
				}
				if _, err := os.Stat(filepath.Join(work, "ran")); err == nil {
					t.Fatalf("%q: completion has run a command that stands on the line", line)
				}
			}
		})
	}
}
