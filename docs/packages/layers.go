package main

// The boxes of the picture: groups of packages, the layer of each, and the arrows between them.

import (
	"fmt"
	"maps"
	"slices"
)

// groupFolders are the folders that get a box of their own. A box holds the packages of its folder
// and of the folders below it that have no box. collective/ep stands apart from collective, because
// it is built on mx and tensor and collective is not.
var groupFolders = []string{
	"python", "launcher", "bench", "datasets", "moe", "collective/ep", "mx", "collective", "tensor", "internal",
}

// leftOut are folders that the picture does not show: they hold tests and documentation.
var leftOut = []string{"docs", "internal/testing", "datasets/testdata"}

// box is a group of packages in the picture.
type box struct {
	folder   string
	packages []string // folders below the box's own, relative to it
	layer    int      // 0 is the top; each arrow points to a greater layer
	arrows   []string // folders of the boxes that it imports and does not reach through another box
}

// boxes groups the packages of a graph. It fails if groups import each other in a circle.
func boxes(graph importGraph) ([]*box, error) {
	byFolder := map[string]*box{}
	imports := map[string]map[string]bool{}
	for _, folder := range slices.Sorted(maps.Keys(graph)) {
		group := groupOf(folder)
		if group == "" {
			continue
		}
		if byFolder[group] == nil {
			byFolder[group] = &box{folder: group, layer: -1}
			imports[group] = map[string]bool{}
		}
		if folder != group {
			byFolder[group].packages = append(byFolder[group].packages, folder[len(group)+1:])
		}
		for _, to := range graph.local(folder) {
			if other := groupOf(to); other != "" && other != group {
				imports[group][other] = true
			}
		}
	}
	var ordered []*box
	for _, folder := range groupFolders {
		b := byFolder[folder]
		if b == nil {
			continue
		}
		ordered = append(ordered, b)
		if err := lower(folder, 0, byFolder, imports); err != nil {
			return nil, err
		}
		for to := range imports[folder] {
			if !reachable(to, imports[folder], imports) {
				b.arrows = append(b.arrows, to)
			}
		}
		slices.Sort(b.arrows)
	}
	return ordered, nil
}

// groupOf returns the folder of the box that holds a package, or "" if the picture leaves it out.
func groupOf(folder string) (group string) {
	if slices.ContainsFunc(leftOut, func(f string) bool { return within(folder, f) }) {
		return ""
	}
	for _, g := range groupFolders {
		if within(folder, g) && len(g) > len(group) {
			group = g
		}
	}
	return group
}

// lower moves a box and what it imports down until each stands at least at the given layer: a box's
// layer is the length of the longest path of imports that leads to it.
func lower(folder string, layer int, all map[string]*box, imports map[string]map[string]bool) error {
	if layer > len(groupFolders) {
		return fmt.Errorf("the packages of %s import each other in a circle", folder)
	}
	if all[folder].layer >= layer {
		return nil
	}
	all[folder].layer = layer
	for to := range imports[folder] {
		if err := lower(to, layer+1, all, imports); err != nil {
			return err
		}
	}
	return nil
}

// reachable reports whether a box can be reached through one of the others in from.
func reachable(folder string, from map[string]bool, imports map[string]map[string]bool) bool {
	for other := range from {
		if other != folder && (imports[other][folder] || reachable(folder, imports[other], imports)) {
			return true
		}
	}
	return false
}
