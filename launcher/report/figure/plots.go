package figure

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/system"
)

// Plots is the folder of the figure files, next to their page.
const Plots = "plots"

// WritePlots writes figures as NAME.svg and NAME.png into the folder [Plots] in dir, which it
// creates if necessary. It removes the files of all names that are not drawn, which belong to an
// earlier page.
func WritePlots(dir string, figures []Figure, all []string) error {
	dir, err := system.OwnFolder(dir, Plots)
	if err == nil {
		err = system.Tidy(dir) // remove the temporary files of a killed process
	}
	if err != nil {
		return err
	}
	for _, f := range figures {
		svg, err := f.SVG()
		if err != nil {
			return err
		}
		png, err := f.png()
		if err != nil {
			return err
		}
		for suffix, content := range map[string][]byte{".svg": svg, ".png": png} {
			if err := system.WriteFile(filepath.Join(dir, f.Name+suffix), content); err != nil {
				return err
			}
		}
	}
	for _, name := range all {
		if slices.ContainsFunc(figures, func(f Figure) bool { return f.Name == name }) {
			continue
		}
		for _, suffix := range []string{".svg", ".png"} {
			if err := os.Remove(filepath.Join(dir, name+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
