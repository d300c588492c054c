package main

// Completion of command lines: a script for each shell, which asks this program what a word may become.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// complete is what scripts ask with: "complete -- WORDS...", the last word being the one that is typed. It is no command for people.
const complete = "__complete"

// What is printed, as the last line, where a path is expected.
const (
	pathFile   = ":file"
	pathFolder = ":folder"
)

func shells() map[string]string {
	return map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
}

func defineCompletion(*flag.FlagSet) func(context.Context, env) error {
	return func(_ context.Context, env env) error {
		shell := strings.Join(env.args, " ")
		script, ok := shells()[shell]
		if !ok {
			return fmt.Errorf("completion %q: say for which shell: bash, zsh or fish", shell)
		}
		_, err := io.WriteString(env.out, script)
		return err
	}
}

// suggest prints what the last of some words may become, one a line.
func suggest(cmds []command, words []string, out io.Writer) {
	for _, s := range suggestions(cmds, words) {
		fmt.Fprintln(out, s)
	}
}

// suggestions returns what the last word may become; pathFile and pathFolder are for the shell.
func suggestions(cmds []command, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	words, split := joined(words)
	before, word := words[:len(words)-1], words[len(words)-1]
	cmd, args := typed(cmds, before)
	fs := allFlags(cmds)
	if cmd.name != "" {
		fs, _ = cmd.flags()
	}
	flagged, value, hasValue := strings.Cut(word, "=")
	switch name, isFlag := flagName(word); {
	case isFlag && hasValue:
		all := starting(valuesOf(cmd.name, fs.Lookup(name)), value)
		for i, v := range all {
			if !split && !strings.HasPrefix(v, ":") {
				all[i] = flagged + "=" + v
			}
		}
		return all
	case strings.HasPrefix(word, "-"):
		return starting(dashed(fs), "--"+strings.ReplaceAll(strings.TrimLeft(word, "-"), "_", "-"))
	}
	if f := waiting(fs, before); f != nil {
		return starting(valuesOf(cmd.name, f), word)
	}
	return starting(arguments(cmds, cmd, fs, args), word)
}

// arguments returns what may follow the arguments of a command.
func arguments(cmds []command, cmd command, fs *flag.FlagSet, args []string) []string {
	first := len(args) == 0
	switch {
	case cmd.name == "":
		return append(commandNames(cmds), "help")
	case cmd.name == "help" && first:
		return commandNames(cmds)
	case len(cmd.actions()) > 0 && first:
		return cmd.actions()
	case cmd.name == "inspect" && first:
		return append(flavors(), pathFolder)
	case takesPath(cmd.args), fs.Lookup("data") != nil: // --data takes several
		return []string{pathFile}
	}
	return nil
}

// dashed returns the flags of a set.
func dashed(fs *flag.FlagSet) []string {
	all := []string{"--help"}
	fs.VisitAll(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Usage, internal) {
			all = append(all, "--"+f.Name)
		}
	})
	return all
}

// joined undoes what bash does to --flag=value: it makes three words of it. split says that it has done so with the last one.
func joined(words []string) (together []string, split bool) {
	for i := 0; i < len(words); i++ {
		last := len(together) - 1
		if words[i] != "=" || last < 0 || !strings.HasPrefix(together[last], "-") {
			together = append(together, words[i])
			continue
		}
		together[last] += "="
		if i+1 < len(words) {
			i++
			together[last] += words[i]
		}
		split = i == len(words)-1
	}
	return together, split
}

// typed returns the command among some words, and its arguments so far; an empty command if there is none yet.
func typed(cmds []command, words []string) (command, []string) {
	name, rest, err := splitCommand(cmds, words)
	cmd, ok := find(append(cmds, command{name: "help", define: func(*flag.FlagSet) func(context.Context, env) error { return nil }}), name)
	if err != nil || !ok || len(words) == 0 {
		return command{}, nil
	}
	fs, _ := cmd.flags()
	var args []string
	for i := 0; i < len(rest); i++ {
		if _, isFlag := flagName(rest[i]); !isFlag {
			args = append(args, rest[i])
		} else if waiting(fs, rest[:i+1]) != nil {
			i++
		}
	}
	return cmd, args
}

// allFlags is the flags of all commands together.
func allFlags(cmds []command) *flag.FlagSet {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	for _, c := range cmds {
		fs, _ := c.flags()
		fs.VisitAll(func(f *flag.Flag) {
			if all.Lookup(f.Name) == nil {
				all.Var(f.Value, f.Name, f.Usage)
			}
		})
	}
	return all
}

// waiting returns the flag that the last word is, if its value comes in the next.
func waiting(fs *flag.FlagSet, words []string) *flag.Flag {
	if len(words) == 0 || strings.Contains(words[len(words)-1], "=") {
		return nil
	}
	name, isFlag := flagName(words[len(words)-1])
	f := fs.Lookup(name)
	if !isFlag || f == nil || isBool(f) {
		return nil
	}
	return f
}

// valuesOf returns what a flag takes, where that can be said.
func valuesOf(command string, f *flag.Flag) []string {
	if f == nil {
		return nil
	}
	if isBool(f) {
		return []string{"true", "false"}
	}
	if all := choices(command, f.Name); len(all) > 0 {
		return all
	}
	placeholder, _ := flag.UnquoteUsage(f)
	switch {
	case placeholder == "FOLDER" || placeholder == "DIR" || f.Name == "out" && placeholder == "TEXT":
		return []string{pathFolder}
	case placeholder == "FILE" || placeholder == "PATH" || slices.Contains([]string{"init-from", "tokenizer"}, f.Name):
		return []string{pathFile}
	}
	return nil
}

// takesPath says whether the arguments of a command are paths.
func takesPath(args string) bool {
	for _, kind := range []string{"PATH", "FILE", "FOLDER", "RUN", "CHECKPOINT", "DIR"} {
		if strings.Contains(args, kind) {
			return true
		}
	}
	return false
}

// starting returns the words with a prefix, and what is for the shell.
func starting(all []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, prefix) && !strings.HasPrefix(s, ":") })
}

const bashScript = `# bash completion of launcher
_launcher() {
    local word="${COMP_WORDS[COMP_CWORD]}" line
    [[ $word == "=" ]] && word=""
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
        :file) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word") ;;
        :folder) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$word") ;;
        *) COMPREPLY+=("$line") ;;
        esac
    done < <("${COMP_WORDS[0]}" ` + complete + ` -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _launcher launcher
`

const zshScript = `#compdef launcher
# zsh completion of launcher
_launcher() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" ` + complete + ` -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case "$line" in
        :file) compset -P '-*='; _files ;;
        :folder) compset -P '-*='; _files -/ ;;
        ?*) found+=("$line") ;;
        esac
    done
    if (( $#found )); then compadd -a found; fi
}
if [[ "${funcstack[1]}" == _launcher ]]; then _launcher "$@"; else compdef _launcher launcher; fi
`

const fishScript = `# fish completion of launcher
function __launcher_complete
    set -l token (commandline -ct)
    set -l words (commandline -opc) "$token"
    set -l given (string match -r -- '^-[^=]*=' $token)
    set -l rest (string replace -r -- '^-[^=]*=' '' "$token")
    for line in ($words[1] ` + complete + ` -- $words[2..-1] 2>/dev/null)
        switch $line
            case :file
                for path in (__fish_complete_path "$rest"); echo "$given$path"; end
            case :folder
                for path in (__fish_complete_directories "$rest"); echo "$given$path"; end
            case '*'
                echo $line
        end
    end
end
complete -c launcher -f -a '(__launcher_complete)'
`
