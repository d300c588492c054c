package weights

// The model card of an exported checkpoint, README.md: what the model is, how it was trained, how
// good it is and how to load it.

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/pelletier/go-toml/v2"

	"spmoe/datasets/hub"
	"spmoe/launcher/record"
	"spmoe/launcher/system"
	"spmoe/moe"
)

// cardName is the name of the model card.
const cardName = "README.md"

//go:embed card.md
var cardText string

// trainedRun is what a model card says of the configuration of the run. Values that are missing are
// zero.
type trainedRun struct {
	Flavor, Precision string
	Steps, Seq, Batch int
	Data              []string
}

// card holds the data of the template.
type card struct {
	Title, DType, Data, Tokenizer string
	Total, Active                 string // millions of parameters
	Model                         moe.Config
	Run                           trainedRun
	Step, Tokens                  int64
	Train, Validation             string // losses; empty if unknown
	Foreign                       []string
}

// writeCard writes the model card of a checkpoint.
func (s *Source) writeCard(dir, dtype, tokenizer string) error {
	counts := s.config.Count()
	c := card{
		DType: dtype, Tokenizer: inCell(filepath.Base(tokenizer)), Model: s.config, Step: s.step, Foreign: s.Foreign(),
		Total: fmt.Sprintf("%.4g", float64(counts.Total)/1e6), Active: fmt.Sprintf("%.4g", float64(counts.Active)/1e6),
	}
	if toml.Unmarshal(s.run, &c.Run) != nil {
		c.Run = trainedRun{}
	}
	c.Title = inCell(c.Run.Flavor + " model")
	c.Run.Precision = inCell(c.Run.Precision)
	c.Data = "source code of the Go standard library"
	if len(c.Run.Data) > 0 {
		c.Data = dataNames(c.Run.Data)
	}
	c.Tokens = s.step * int64(c.Run.Batch) * int64(c.Run.Seq)
	c.addMetrics(filepath.Dir(s.path), s.step)
	t, err := template.New(cardName).Parse(cardText)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, c); err != nil {
		return err
	}
	return system.WriteFile(filepath.Join(dir, cardName), out.Bytes())
}

// dataNames lists the names of sources without their folders, which may say too much.
func dataNames(sources []string) string {
	var names []string
	for _, s := range sources {
		if !strings.HasPrefix(s, hub.Prefix) {
			s = filepath.Base(s)
		}
		names = append(names, "`"+inCell(s)+"`")
	}
	return strings.Join(names, ", ")
}

// inCell returns text as part of a cell of a Markdown table.
func inCell(text string) string {
	return strings.NewReplacer("|", " ", "`", " ", "\n", " ", "\r", " ", "<", "&lt;").Replace(text)
}

// lastSteps is the number of steps whose mean is the training loss.
const lastSteps = 10

// addMetrics adds the losses at a step, if the folder of the run has its record.
func (c *card) addMetrics(run string, step int64) {
	log, err := record.Read(run)
	if err != nil {
		return
	}
	sum, n := 0.0, 0
	for _, s := range log.Steps {
		if loss := float64(s.Loss); int64(s.Step) > step-lastSteps && int64(s.Step) <= step && loss-loss == 0 {
			sum, n = sum+loss, n+1
		}
	}
	if n > 0 {
		c.Train = fmt.Sprintf("%.4f", sum/float64(n))
	}
	for _, e := range log.Evals {
		if loss := float64(e.Loss); int64(e.Step) <= step && loss-loss == 0 {
			c.Validation = fmt.Sprintf("%.4f after step %d", loss, e.Step)
		}
	}
}
