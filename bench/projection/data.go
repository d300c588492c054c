package projection

// The embedded data files: hardware, kernel efficiencies, parameters with their priors, published
// figures.

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	"spmoe/internal/strictjson"
)

// files are the data files.
//
//go:embed data
var files embed.FS

// contents is the decoded content of the data files.
type contents struct {
	hardware   []Hardware
	b200, h200 []efficiency
	parameters parameterFile
	stacks     map[string]Stack
	hash       string // of the parameter file
	models     []publishedModel
	published  publishedRows
	effects    Effects
	h200Rows   []calibrationRow
}

// data decodes the embedded files once. Tests check that they are well formed, so an error is a
// programming error.
var data = sync.OnceValue(func() *contents {
	c, err := readContents(files)
	if err != nil {
		panic(fmt.Sprintf("projection: %v", err))
	}
	return c
})

func readContents(from fs.FS) (*contents, error) {
	c := &contents{}
	list, err := fs.Glob(from, "data/hardware/*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		h, err := ParseHardware(path.Base(name), text)
		if err != nil {
			return nil, err
		}
		c.hardware = append(c.hardware, h)
	}
	var table struct {
		Kind   Kind
		Source string
		Rows   []efficiency
	}
	var calibration struct{ Rows []calibrationRow }
	for name, to := range map[string]any{
		"kernels_b200.json": &table, "models.json": &c.models, "published.json": &c.published, "h200.json": &calibration, "parameters.json": &c.parameters, "effects.json": &c.effects,
	} {
		text, err := fs.ReadFile(from, "data/"+name)
		if err != nil {
			return nil, err
		}
		if err := strictjson.Unmarshal(text, to); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if name == "parameters.json" {
			sum := sha256.Sum256(text)
			c.hash = hex.EncodeToString(sum[:])
		}
	}
	c.b200 = table.Rows
	for i := range c.b200 {
		e := &c.b200[i]
		if e.kind, e.Source = table.Kind, cmp.Or(e.Source, table.Source); len(e.Share) != 3 {
			return nil, fmt.Errorf("kernels_b200.json: row %d has %d shares: want those of forward, dgrad and wgrad", i, len(e.Share))
		}
	}
	c.h200Rows = calibration.Rows
	c.h200 = hopperTable(calibration.Rows)
	if err := c.parameters.check(); err != nil {
		return nil, err
	}
	c.stacks, err = c.parameters.stacks()
	return c, err
}

// ParameterHash returns the SHA-256 of the parameter file, which every projection prints.
func ParameterHash() string { return data().hash }

// ParameterVersion returns the date at which the parameters were frozen.
func ParameterVersion() string { return data().parameters.Version }

// Value is a number with its source.
type Value struct {
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Source string  `json:"source"`
	Kind   Kind    `json:"kind"`
}

// Curve is a function given by points of increasing x.
type Curve struct {
	Points [][2]float64 `json:"points"`
	Unit   string       `json:"unit"`
	Source string       `json:"source"`
	Kind   Kind         `json:"kind"`
}

// At interpolates over the logarithm of x. It is constant beyond the ends.
func (c Curve) At(x float64) float64 {
	p := c.Points
	if x <= p[0][0] {
		return p[0][1]
	}
	for i := 1; i < len(p); i++ {
		if x <= p[i][0] {
			part := math.Log(x/p[i-1][0]) / math.Log(p[i][0]/p[i-1][0])
			return p[i-1][1] + part*(p[i][1]-p[i-1][1])
		}
	}
	return p[len(p)-1][1]
}

// Hardware describes a GPU and the links of its system.
type Hardware struct {
	Name             string `json:"name"`
	About            string `json:"about"`
	BF16             Value  `json:"bf16_tflops"`   // dense
	FP8              Value  `json:"fp8_tflops"`    // dense; MXFP8 if the GPU has it
	Memory           Value  `json:"hbm_gb"`        // GB
	HBM              Value  `json:"hbm_tbs"`       // TB/s
	NVLink           Value  `json:"nvlink_gbs"`    // GB/s each way
	Domain           Value  `json:"nvlink_domain"` // GPUs per NVLink domain
	NodeGPUs         Value  `json:"node_gpus"`
	NIC              Value  `json:"nic_gbs"` // GB/s each way, per GPU
	Watts            Value  `json:"watts"`
	NVLinkAllToAll   Curve  `json:"nvlink_all_to_all"` // sustained share of NVLink, by ranks
	NVLinkDedup      Curve  `json:"nvlink_dedup"`      // the same for a de-duplicating exchange
	NVLinkCollective Value  `json:"nvlink_collective"` // of all-gather and reduce-scatter
	HostMicros       Value  `json:"host_us"`           // of the host per kernel that it launches
	Kernels          string `json:"kernels"`           // the table of efficiencies: b200 or h200
}

// ParseHardware reads a hardware file. An error names the missing or invalid field.
func ParseHardware(name string, text []byte) (Hardware, error) {
	var h Hardware
	if len(text) > 1<<20 {
		return h, fmt.Errorf("%s: %d bytes: a hardware file has a few thousand", name, len(text))
	}
	if err := strictjson.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	v := reflect.ValueOf(h)
	for i := range v.NumField() {
		field := v.Type().Field(i).Tag.Get("json")
		var err error
		switch f := v.Field(i).Interface().(type) {
		case string:
			if f == "" && field != "about" {
				err = fmt.Errorf("is missing")
			}
		case Value:
			err = f.check()
		case Curve:
			err = f.check()
		}
		if err != nil {
			return h, fmt.Errorf("%s: field %s %w", name, field, err)
		}
	}
	if h.Kernels != "b200" && h.Kernels != "h200" {
		return h, fmt.Errorf("%s: field kernels is %q: use b200 or h200", name, h.Kernels)
	}
	if h.Domain.Value < 1 || h.NodeGPUs.Value < 1 {
		return h, fmt.Errorf("%s: field nvlink_domain is %g and node_gpus %g: give 1 GPU or more", name, h.Domain.Value, h.NodeGPUs.Value)
	}
	return h, nil
}

func (v Value) check() error {
	switch {
	case v == Value{}:
		return fmt.Errorf("is missing: give value, unit, source and kind")
	case !positive(v.Value) || v.Value > 1e9:
		return fmt.Errorf("has the value %g: give a positive number", v.Value)
	case v.Unit == "" || v.Source == "":
		return fmt.Errorf("lacks its unit or its source")
	case !slices.Contains(kinds, v.Kind):
		return fmt.Errorf("is of kind %q: use one of %v", v.Kind, kinds)
	}
	return nil
}

func (c Curve) check() error {
	if len(c.Points) == 0 {
		return fmt.Errorf("is missing: give points, unit, source and kind")
	}
	last := 0.0
	for _, p := range c.Points {
		if !positive(p[0]) || !positive(p[1]) || p[0] <= last || p[1] > 1e9 {
			return fmt.Errorf("has the point %v: give positive numbers, the first increasing", p)
		}
		last = p[0]
	}
	return Value{1, c.Unit, c.Source, c.Kind}.check()
}

// GPUs lists the names of the hardware files.
func GPUs() []string {
	var all []string
	for _, h := range data().hardware {
		all = append(all, h.Name)
	}
	slices.Sort(all)
	return all
}

// HardwareByName returns the description of a GPU. It ignores case.
func HardwareByName(name string) (Hardware, error) {
	for _, h := range data().hardware {
		if strings.EqualFold(h.Name, name) {
			return h, nil
		}
	}
	return Hardware{}, oneOf("GPU", name, GPUs())
}
