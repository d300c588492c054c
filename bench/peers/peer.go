package main

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"spmoe/bench"
)

//go:embed src
var sources embed.FS

// library is a peer: its program and the requirements of that.
type library struct {
	Name    string
	source  string
	link    []string
	debian  string   // its package
	formats []string // of bench.Product that it supports
}

var libraries = []library{
	{"oneDNN", "onednn.cpp", []string{"-ldnnl"}, "libdnnl-dev", []string{"bf16", "mxint8", "fp32"}},
	{"libxsmm", "libxsmm.cpp", []string{"-lxsmm", "-lxsmmnoblas", "-ldl", "-lpthread", "-lm"}, "libxsmm-dev", []string{"bf16"}},
	{"OpenBLAS", "openblas.cpp", []string{"-lopenblas"}, "libopenblas-dev", []string{"fp32"}},
}

// peer is the running program of a library.
type peer struct {
	library
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// start builds and starts all programs. It skips a program that cannot be built and names the
// package that it needs. It returns an error if nothing is left.
func start(out io.Writer) (peers []*peer, err error) {
	folder, err := os.MkdirTemp("", "peers")
	if err != nil {
		return nil, err
	}
	// A running program no longer needs its file.
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.CopyFS(folder, sources); err != nil {
		return nil, err
	}
	for _, l := range libraries {
		program, err := l.build(filepath.Join(folder, "src"))
		if err != nil {
			fmt.Fprintf(out, "without %s: %v\n", l.Name, err)
			continue
		}
		p, err := l.start(program)
		if err != nil {
			return peers, err
		}
		peers = append(peers, p)
	}
	if len(peers) == 0 {
		return nil, errors.New("there is no library to compare with")
	}
	return peers, nil
}

// build compiles the program.
func (l library) build(folder string) (program string, err error) {
	program = filepath.Join(folder, strings.TrimSuffix(l.source, ".cpp"))
	args := append([]string{"-O2", "-march=native", "-std=c++17", filepath.Join(folder, l.source), "-o", program}, l.link...)
	output, err := exec.Command("g++", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("there is no g++: install it (Debian: apt-get install g++)")
	}
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
		return "", fmt.Errorf("its program does not build: install the library (Debian: apt-get install %s); g++ says: %s", l.debian, first)
	}
	return program, nil
}

// start runs the program on one thread. The library chooses its kernels itself.
func (l library) start(program string) (*peer, error) {
	p := &peer{library: l, process: exec.Command(program)}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "LIBXSMM_TARGET"}, name) {
			p.process.Env = append(p.process.Env, v)
		}
	}
	p.process.Env = append(p.process.Env, "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1")
	p.process.Stderr = os.Stderr
	in, err := p.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewScanner(answers)
	return p, p.process.Start()
}

func (p *peer) has(format string) bool { return slices.Contains(p.formats, format) }

// stop ends the program's input, which ends the program.
func (p *peer) stop() {
	p.in.Close()
	p.process.Wait()
}

// prepare makes the program allocate the operands and check its product.
func (p *peer) prepare(of bench.Product) error {
	format := of.Format
	if format == "mxint8" {
		format = "int8"
	}
	_, err := p.ask(fmt.Sprintf("prepare %s %d %d %d %d %d", format, of.Groups, of.M, of.N, of.K, of.Copies()))
	return err
}

// run measures for about d, in GFLOP/s.
func (p *peer) run(d time.Duration) (float64, error) {
	answer, err := p.ask(fmt.Sprintf("run %g", d.Seconds()))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(answer, 64)
}

// ask sends a command and returns the answer.
func (p *peer) ask(command string) (string, error) {
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		return "", err
	}
	if !p.out.Scan() {
		return "", fmt.Errorf("the program ended at %q", command)
	}
	answer := p.out.Text()
	if reason, bad := strings.CutPrefix(answer, "error "); bad {
		return "", fmt.Errorf("%s: %s", command, reason)
	}
	return answer, nil
}
