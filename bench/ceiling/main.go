// Command ceiling prints how many multiply instructions per cycle the inner loops of arm64 reach in
// llvm-mca's model of a core. The model knows no caches, so the figures are ceilings and not
// measurements.
//
//	GOARCH=arm64 go build -o spmoe-arm64 ./launcher
//	go run ./bench/ceiling spmoe-arm64
//
// It needs llvm-mc and llvm-mca of LLVM 19 (Debian's llvm-19).
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
)

// cpus are the models: Graviton3, and Graviton4, Grace and Axion.
var cpus = []string{"neoverse-v1", "neoverse-v2"}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: ceiling PROGRAM, a build of the launcher for arm64")
	}
	functions, err := kernelsOf(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%-40s %10s", "inner loop", "multiplies")
	for _, cpu := range cpus {
		fmt.Printf("  %14s", cpu)
	}
	fmt.Println()
	for _, f := range functions {
		for i, words := range innerLoops(f.words) {
			text, err := disassemble(words)
			if err != nil {
				log.Fatal(err)
			}
			multiplies, kind := countMultiplies(text)
			if multiplies == 0 {
				continue
			}
			fmt.Printf("%-40s %3d %-6s", fmt.Sprintf("%s, loop %d", f.name, i+1), multiplies, strings.ToUpper(kind))
			for _, cpu := range cpus {
				cycles, err := cyclesOf(text, cpu)
				if err != nil {
					log.Fatal(err)
				}
				fmt.Printf("  %14.2f", float64(multiplies)/cycles)
			}
			fmt.Println()
		}
	}
}
