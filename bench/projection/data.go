package projection

// The embedded tables: constants, GPUs, models, published rows, and what the fit left out.

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"spmoe/internal/strictjson"
)

//go:embed data
var files embed.FS

// contents is the decoded content of the tables.
type contents struct {
	constants Constants
	names     []string // of the constants, in the order of the table
	hash      string   // of the table of constants
	gpus      []Hardware
	models    []publishedModel
	rows      []Row
	scores    Scores
}

// data decodes the tables once. Tests check that they are well formed, so an error is a programming
// error.
var data = sync.OnceValue(func() *contents {
	c, err := readContents()
	if err != nil {
		panic(fmt.Sprintf("projection: %v", err))
	}
	return c
})

func readContents() (*contents, error) {
	c := &contents{constants: Constants{}}
	var list []Constant
	for name, to := range map[string]any{
		"constants.json": &list, "gpus.json": &c.gpus, "models.json": &c.models, "rows.json": &c.rows, "scores.json": &c.scores,
	} {
		text, err := files.ReadFile("data/" + name)
		if err != nil {
			return nil, err
		}
		if err := strictjson.Unmarshal(text, to); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if name == "constants.json" {
			sum := sha256.Sum256(text)
			c.hash = hex.EncodeToString(sum[:])
		}
	}
	for _, k := range list {
		if k.Unit == "" || k.Source == "" || !positive(k.Prior) || k.Deviation < 0 || (k.Kind == Fitted) != (k.Deviation > 0) {
			return nil, fmt.Errorf("constants.json: %s is malformed: %+v", k.Name, k)
		}
		c.constants[k.Name] = k
		c.names = append(c.names, k.Name)
	}
	return c, nil
}

// Kind is the basis of a constant.
type Kind string

// The kinds of constants.
const (
	Measured  Kind = "measured"  // on one of our GPUs
	Published Kind = "published" // by others, for this kernel or link
	Assumed   Kind = "assumed"   // neither measured nor published
	Fitted    Kind = "fitted"    // to published throughputs, from a prior
)

// Constant is a number of the formula. A fitted one has a prior: a normal distribution of its
// logarithm, or of the number itself if Linear, with this deviation.
type Constant struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Prior     float64 `json:"prior"`
	Deviation float64 `json:"deviation"`
	Linear    bool    `json:"linear,omitempty"`
	Unit      string  `json:"unit"`
	About     string  `json:"about"`
	Source    string  `json:"source"` // of the prior
	Kind      Kind    `json:"kind"`
}

// Constants are the numbers of the formula by name.
type Constants map[string]Constant

// at returns a constant. A name that the table lacks is a programming error.
func (k Constants) at(name string) float64 {
	c, ok := k[name]
	if !ok {
		panic("projection: data/constants.json lacks " + name)
	}
	return c.Value
}

// of returns the constant that a GPU's description names, or a default if it names none.
func (k Constants) of(name string, none float64) float64 {
	if name == "" {
		return none
	}
	return k.at(name)
}

// Table returns all constants in the order of the table.
func Table() (all []Constant) {
	for _, name := range data().names {
		all = append(all, data().constants[name])
	}
	return all
}

// Fit returns the SHA-256 of the table of constants.
func Fit() string { return data().hash }

// Hardware describes a GPU and the links of its system.
type Hardware struct {
	Name   string  `json:"name"`
	About  string  `json:"about"`
	BF16   float64 `json:"bf16_tflops"` // dense
	Memory float64 `json:"hbm_gb"`
	HBM    float64 `json:"hbm_tbs"`
	NVLink float64 `json:"nvlink_gbs"`    // each way
	Domain float64 `json:"nvlink_domain"` // GPUs per NVLink domain
	NIC    float64 `json:"nic_gbs"`       // each way, per GPU
	Chip   string  `json:"chip"`          // constant that multiplies its peak; empty: that of B200
	FP8    string  `json:"fp8"`           // constant of its 8-bit products
	Source string  `json:"source"`
}

// ParseHardware reads the description of a GPU, in the form of an entry of data/gpus.json.
func ParseHardware(name string, text []byte) (h Hardware, err error) {
	if err := strictjson.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	for _, f := range []struct {
		field string
		value float64
	}{
		{"bf16_tflops", h.BF16}, {"hbm_gb", h.Memory}, {"hbm_tbs", h.HBM}, {"nvlink_gbs", h.NVLink},
		{"nvlink_domain", h.Domain}, {"nic_gbs", h.NIC},
	} {
		if !positive(f.value) || f.value > 1e9 {
			return h, fmt.Errorf("%s: field %s is %g: give a positive number, as in bench/projection/data/gpus.json", name, f.field, f.value)
		}
	}
	for field, constant := range map[string]string{"chip": h.Chip, "fp8": h.FP8} {
		if _, ok := data().constants[constant]; !ok && (constant != "" || field == "fp8") {
			return h, fmt.Errorf("%s: field %s is %q: give a constant of bench/projection/data/constants.json, as chip_gb300 or fp8", name, field, constant)
		}
	}
	if h.Name == "" {
		return h, fmt.Errorf("%s: field name is missing", name)
	}
	return h, nil
}

// GPUs lists the names of the known GPUs.
func GPUs() (all []string) {
	for _, h := range data().gpus {
		all = append(all, h.Name)
	}
	return all
}

// hardwareByName returns the description of a GPU. It ignores case.
func hardwareByName(name string) (Hardware, error) {
	i := slices.IndexFunc(data().gpus, func(h Hardware) bool { return strings.EqualFold(h.Name, name) })
	if i < 0 {
		return Hardware{}, oneOf("GPU", name, GPUs())
	}
	return data().gpus[i], nil
}
