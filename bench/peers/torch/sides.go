package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// scripts are PyTorch's side, so that this program runs on a machine without the source.
//
//go:embed *.py
var scripts embed.FS

// side is a program that trains and prints its results as JSON lines.
type side struct {
	program string
	args    []string
	in      []byte
}

// failure is a side that did not train. reason is the last line that it printed.
type failure struct {
	reason string
	killed bool
}

func (f *failure) Error() string { return f.reason }

// memory reports whether the side needs more memory than there is: it says so, or was killed.
func (f *failure) memory() bool {
	return f.killed || strings.Contains(f.reason, "memory")
}

// output runs the program. Only a program that ran and failed gives a [failure].
func (s side) output(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.program, s.args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(s.in), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &exit):
		status, _ := exit.Sys().(syscall.WaitStatus)
		return nil, &failure{lastLine(errOut.String(), exit.String()), status.Signaled() && status.Signal() == syscall.SIGKILL}
	}
	return out.Bytes(), err
}

func lastLine(text, otherwise string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return otherwise
	}
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// figures runs the program, and returns the values in its output by name.
func (s side) figures(ctx context.Context) (map[string]float64, error) {
	out, err := s.output(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var line struct {
			Name  string
			Value float64
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", s.program, lines.Text(), err)
		}
		values[line.Name] = line.Value
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s printed no figures", s.program)
	}
	return values, nil
}

// unpack writes the scripts to a folder, and returns the path of the one to run.
func unpack(folder string) (string, error) {
	return filepath.Join(folder, "train.py"), os.CopyFS(folder, scripts)
}

// build builds the launcher from this repository's source, and returns its path.
func build(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "launcher")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./launcher").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the launcher: %w: %s", err, said)
	}
	return path, nil
}
