package main

// Calls of LLVM: the text of instructions, and the cycles that a model of a core takes for them.

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	features   = "-mattr=+bf16,+i8mm,+dotprod"
	iterations = 200
)

// run runs a program of LLVM.
func run(input string, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s; install Debian's llvm-19", program, err, strings.TrimSpace(problems.String()))
	}
	return string(out), nil
}

// disassemble returns the text of machine code.
func disassemble(words []uint32) (string, error) {
	var bytes strings.Builder
	for _, w := range words {
		fmt.Fprintf(&bytes, "0x%02x 0x%02x 0x%02x 0x%02x\n", w&255, w>>8&255, w>>16&255, w>>24)
	}
	return run(bytes.String(), "llvm-mc-19", "--disassemble", "-triple=aarch64", features)
}

var multiply = regexp.MustCompile(`(?m)^\s*(fmla|fmls|bfmmla|bfmlal|bfdot|smmla|sdot)[bt]?\s`)

// countMultiplies returns the most frequent multiply-add instruction and how often it occurs.
func countMultiplies(text string) (n int, name string) {
	counts := map[string]int{}
	for _, found := range multiply.FindAllStringSubmatch(text, -1) {
		counts[found[1]]++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		if counts[kind] > n {
			n, name = counts[kind], kind
		}
	}
	return n, name
}

var total = regexp.MustCompile(`Total Cycles:\s+(\d+)`)

// cyclesOf returns the cycles per iteration of a loop.
func cyclesOf(text, cpu string) (float64, error) {
	out, err := run(text, "llvm-mca-19", "-mtriple=aarch64", "-mcpu="+cpu, features, "-iterations="+strconv.Itoa(iterations))
	if err != nil {
		return 0, err
	}
	found := total.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("llvm-mca printed no cycles:\n%s", out)
	}
	cycles, err := strconv.Atoi(found[1])
	return float64(cycles) / iterations, err
}
