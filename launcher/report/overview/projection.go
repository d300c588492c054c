package overview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"spmoe/launcher/report"
	"spmoe/launcher/system"
)

// Projection is the projected throughput of a cluster of GPUs with a run's routing, as train
// --project writes it to the run's folder.
type Projection struct {
	Budget struct {
		Tokens float64 // per second and GPU
		Run    struct {
			Model string
			GPU   string
			GPUs  int
		}
	}
	Range struct{ P10, P90 float64 } // the 80 % interval of Tokens
}

// projectionFile is the name of the file. maxProjection is far above its size in bytes.
const (
	projectionFile = "projection.json"
	maxProjection  = 4 << 20
)

// readProjection returns the projection in the folder of a run, or nil if there is none.
func readProjection(folder string) (*Projection, error) {
	text, err := system.ReadFile(filepath.Join(folder, projectionFile), maxProjection)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var p Projection
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", projectionFile, err)
	}
	return &p, nil
}

// fact returns the projection as a fact of the page.
func (p *Projection) fact() fact {
	r := p.Budget.Run
	return fact{
		"projected", report.Thousands(p.Budget.Tokens),
		fmt.Sprintf("tokens/s per GPU of %s on %d %s with this run’s routing; 80 %% interval %s to %s", r.Model, r.GPUs, r.GPU, report.Thousands(p.Range.P10), report.Thousands(p.Range.P90)),
	}
}
