// Packages draws the packages of this module and their imports as an SVG picture. The picture in
// docs/architecture.md is its output:
//
//	go run ./docs/packages > docs/packages.svg
package main

import (
	"fmt"
	"os"
)

func main() {
	picture, err := draw(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
	if _, err := os.Stdout.WriteString(picture); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// draw returns the picture of the module whose root folder is given.
func draw(root string) (string, error) {
	graph, said, err := readPackages(root)
	if err != nil {
		return "", err
	}
	all, err := boxes(graph)
	if err != nil {
		return "", err
	}
	if len(all) != len(groupFolders) {
		return "", fmt.Errorf("%s has Go code in %d of the folders %q: run this in the root of the repository", root, len(all), groupFolders)
	}
	return newPicture(all, said).svg(), nil
}
