package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"spmoe/internal/strictjson"
	"spmoe/launcher/system"
)

// tokenizerConfig is the file of a Hugging Face model that names, among other things, its first
// token.
const tokenizerConfig = "tokenizer_config.json"

// mostConfig bounds its size in bytes.
const mostConfig = 16 << 20

// Beginning returns the special token that the prompts of a Hugging Face model must begin with, as
// text. It is empty if there is none, or no tokenizer_config.json in the folder.
func Beginning(folder string) (string, error) {
	path := filepath.Join(folder, tokenizerConfig)
	data, err := system.ReadFile(path, mostConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	begin, err := parseBeginning(data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return begin, nil
}

func parseBeginning(data []byte) (string, error) {
	var c struct {
		Add   bool            `json:"add_bos_token"`
		Token json.RawMessage `json:"bos_token"` // text, or an object whose content is the text
	}
	if err := strictjson.Unmarshal(data, &c); err != nil || !c.Add {
		return "", err
	}
	var text string
	if json.Unmarshal(c.Token, &text) == nil && text != "" {
		return text, nil
	}
	var token struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(c.Token, &token) == nil && token.Content != "" {
		return token.Content, nil
	}
	return "", fmt.Errorf("bos_token is %.100q although add_bos_token is true: expected a text, or an object whose content is a text", c.Token)
}
