package tasks

// The forms of lines, which are those of the datasets on the Hugging Face hub.

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// expected says what a file must be.
const expected = `expected JSON lines with "text" (LAMBADA), "ctx", "endings" and "label" (HellaSwag), or "question", "choices" and "answerKey" (ARC)`

// row has the fields of a line that count, of all forms. Those that are absent are nil.
type row struct {
	Text *string `json:"text"`

	Activity *string         `json:"activity_label"`
	CtxA     *string         `json:"ctx_a"`
	CtxB     *string         `json:"ctx_b"`
	Ctx      *string         `json:"ctx"`
	Endings  []string        `json:"endings"`
	Label    json.RawMessage `json:"label"`

	Question  *string         `json:"question"`
	Choices   json.RawMessage `json:"choices"`
	AnswerKey *string         `json:"answerKey"`
}

// The names of the forms.
const (
	nameLambada   = "LAMBADA"
	nameHellaSwag = "HellaSwag"
	nameARC       = "ARC"
)

// form is a form of lines.
type form struct {
	name string
	item func(row) (Item, error)
}

// form returns the form of a line.
func (r *row) form() (form, error) {
	switch {
	case r.Endings != nil:
		return form{nameHellaSwag, hellaSwag}, nil
	case r.Question != nil && r.Choices != nil:
		return form{nameARC, arc}, nil
	case r.Text != nil:
		return form{nameLambada, lambada}, nil
	}
	return form{}, errors.New(expected)
}

// lambada asks for the last word of a text. Words are separated by single spaces, so there may be
// empty ones.
func lambada(r row) (Item, error) {
	at := strings.LastIndexByte(*r.Text, ' ')
	if *r.Text == "" {
		return Item{}, errors.New("the text is empty")
	}
	return Item{Context: (*r.Text)[:max(at, 0)], Choices: []string{(*r.Text)[at+1:]}}, nil
}

// hellaSwag asks for the ending of a description.
func hellaSwag(r row) (item Item, err error) {
	switch {
	case r.CtxA != nil && r.CtxB != nil:
		item.Context = *r.CtxA + " " + capitalize(*r.CtxB)
	case r.Ctx != nil:
		item.Context = *r.Ctx
	default:
		return item, errors.New(`expected the context in "ctx", or in "ctx_a" and "ctx_b"`)
	}
	if r.Activity != nil {
		item.Context = *r.Activity + ": " + item.Context
	}
	item.Context = withoutMarks(item.Context)
	for _, ending := range r.Endings {
		item.Choices = append(item.Choices, withoutMarks(ending))
	}
	label := strings.Trim(string(r.Label), `"`) // a number, or one in quotes
	item.Answer, err = strconv.Atoi(label)
	if err != nil || item.Answer < 0 || item.Answer >= len(item.Choices) {
		return item, fmt.Errorf("label is %.40q: expected the index of the right one of %d endings (test splits have none)", label, len(item.Choices))
	}
	return item, nil
}

// mark is a mark such as [header] in texts from WikiHow.
var mark = regexp.MustCompile(`\[.*?\]`)

// withoutMarks removes the marks of texts from WikiHow.
func withoutMarks(text string) string {
	text = strings.ReplaceAll(strip(text), " [title]", ". ")
	return strings.ReplaceAll(mark.ReplaceAllString(text, ""), "  ", " ")
}

// arc asks a question.
func arc(r row) (Item, error) {
	var choices struct {
		Text  []string `json:"text"`
		Label []string `json:"label"`
	}
	if err := json.Unmarshal(r.Choices, &choices); err != nil || len(choices.Text) == 0 || len(choices.Text) != len(choices.Label) {
		return Item{}, errors.New(`expected "choices" with as many "text" as "label", as in the hub's ai2_arc`)
	}
	if r.AnswerKey == nil {
		return Item{}, errors.New(`there is no "answerKey"`)
	}
	answer := slices.Index(choices.Label, *r.AnswerKey)
	if answer < 0 {
		return Item{}, fmt.Errorf("answerKey is %.40q: expected one of the labels %.100q", *r.AnswerKey, choices.Label)
	}
	return Item{Context: "Question: " + *r.Question + "\nAnswer:", Choices: choices.Text, Answer: answer}, nil
}
