package main

// Shell completion: a script per shell, which asks this program for the possible completions of the
// word being typed.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// complete is the command that the scripts run: "__complete MODE WORDS...", where the last word is
// being typed. It is not for users. MODE is "--", or described for suggestions with a tab and a
// description behind them.
const (
	complete  = "__complete"
	described = "described"
)

// The last line of the suggestions where the shell must complete a path itself.
const (
	pathFile   = ":file"
	pathFolder = ":folder"
)

func defineCompletion(*flag.FlagSet) action {
	return func(_ context.Context, env env) error {
		shell := strings.Join(env.args, " ")
		script, ok := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[shell]
		if !ok {
			return fmt.Errorf("completion %q: name the shell: bash, zsh or fish", shell)
		}
		_, err := io.WriteString(env.out, script)
		return err
	}
}

// printSuggestions prints the completions of the last word, one per line. args are the mode and the
// words.
func printSuggestions(cmds []command, args []string, out io.Writer) {
	for _, s := range suggestions(cmds, args[min(1, len(args)):]) {
		if len(args) == 0 || args[0] != described {
			s, _, _ = strings.Cut(s, "\t")
		}
		fmt.Fprintln(out, strings.TrimSuffix(s, "\t"))
	}
}

// suggestions returns the completions of the last word. Flags and commands have their descriptions
// behind a tab.
func suggestions(cmds []command, words []string) []string {
	words, split := joinFlags(words)
	if len(words) == 0 {
		words = []string{""}
	}
	before, word := words[:len(words)-1], words[len(words)-1]
	cmd, fs, args := parsePartly(cmds, before)
	given, value, assigned := strings.Cut(word, "=")
	switch name, isFlag := flagName(word); {
	case isFlag && assigned:
		all := withPrefix(flagValues(cmd.name, fs.Lookup(name)), value)
		for i, v := range all {
			if !split && !strings.HasPrefix(v, ":") {
				all[i] = given + "=" + v
			}
		}
		return all
	case strings.HasPrefix(word, "-"):
		return withPrefix(flagWords(fs), "--"+name)
	}
	if f := unfinished(fs, before); f != nil {
		return withPrefix(flagValues(cmd.name, f), word)
	}
	return withPrefix(nextArguments(cmds, cmd, fs, args), word)
}

// joinFlags joins --flag=value, which bash splits into three words. split reports whether the last
// word was split.
func joinFlags(words []string) (joined []string, split bool) {
	for i := 0; i < len(words); i++ {
		last := len(joined) - 1
		if words[i] != "=" || last < 0 || !strings.HasPrefix(joined[last], "-") {
			joined = append(joined, words[i])
			continue
		}
		joined[last] += "="
		if i+1 < len(words) {
			i++
			joined[last] += words[i]
		}
		split = i == len(words)-1
	}
	return joined, split
}

// parsePartly returns the command or subcommand that some words select, its flags, and its
// arguments so far. Until a command or subcommand is given, the flags are those of all.
func parsePartly(cmds []command, words []string) (cmd command, fs *flag.FlagSet, args []string) {
	name, rest, err := splitCommand(cmds, words)
	cmd, ok := find(cmds, name)
	if err != nil || !ok || len(words) == 0 {
		return command{subcommands: cmds}, allFlags(cmds), nil
	}
	if i, _, _ := firstWord([]command{cmd}, rest); i >= 0 {
		if sub, ok := find(cmd.subcommands, rest[i]); ok {
			cmd, rest = sub, slices.Delete(slices.Clone(rest), i, i+1)
		}
	}
	if fs, _ = cmd.flags(); len(cmd.subcommands) > 0 {
		fs = allFlags([]command{cmd})
	}
	for i := 0; i < len(rest); i++ {
		if _, isFlag := flagName(rest[i]); !isFlag {
			args = append(args, rest[i])
		} else if unfinished(fs, rest[:i+1]) != nil {
			i++
		}
	}
	return cmd, fs, args
}

// unfinished returns the flag that the last word names if the next word is its value.
func unfinished(fs *flag.FlagSet, words []string) *flag.Flag {
	if len(words) == 0 {
		return nil
	}
	last := words[len(words)-1]
	name, _ := flagName(last)
	if f := fs.Lookup(name); f != nil && takesNext(f, last) {
		return f
	}
	return nil
}

// nextArguments returns the candidates for a command's next argument.
func nextArguments(cmds []command, cmd command, fs *flag.FlagSet, args []string) (all []string) {
	describe := func(cmds []command) []string {
		for _, c := range cmds {
			all = append(all, c.word()+"\t"+c.about)
		}
		return all
	}
	first := len(args) == 0
	takesPath := slices.ContainsFunc([]string{"PATH", "FILE", "FOLDER", "RUN", "CHECKPOINT", "DIR"}, func(kind string) bool {
		return strings.Contains(cmd.args, kind)
	})
	switch {
	case cmd.name == "help" && first:
		return describe(cmds)
	case cmd.name == "help":
		if family, ok := find(cmds, args[0]); ok && len(args) == 1 {
			return describe(family.subcommands)
		}
	case len(cmd.subcommands) > 0 && first:
		return describe(cmd.subcommands)
	case len(cmd.choices()) > 0 && first:
		return cmd.choices()
	case cmd.name == "inspect" && first:
		return append(flavors(), pathFolder)
	case takesPath, fs.Lookup("data") != nil: // --data takes several
		return []string{pathFile}
	}
	return nil
}

// flagWords returns the flags of a set as they are typed, with their descriptions.
func flagWords(fs *flag.FlagSet) []string {
	all := []string{"--help"}
	fs.VisitAll(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Usage, internal) {
			all = append(all, "--"+f.Name+"\t"+flagHelp(f, ""))
		}
	})
	return all
}

// flagValues returns the values that a flag takes, if they are known.
func flagValues(command string, f *flag.Flag) []string {
	if f == nil {
		return nil
	}
	if isBool(f) {
		return []string{"true", "false"}
	}
	if all := flagChoices(command, f.Name); len(all) > 0 {
		return all
	}
	placeholder, _ := flag.UnquoteUsage(f)
	switch {
	case placeholder == "FOLDER", placeholder == "DIR", f.Name == "out" && placeholder == "TEXT":
		return []string{pathFolder}
	case strings.HasPrefix(placeholder, "FILE"), placeholder == "PATH", f.Name == "init-from", f.Name == "tokenizer":
		return []string{pathFile}
	}
	return nil
}

// withPrefix returns the suggestions that begin with a prefix, and the paths that the shell
// completes.
func withPrefix(all []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		return !strings.HasPrefix(s, prefix) && !strings.HasPrefix(s, ":")
	})
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
    for line in ($words[1] ` + complete + ` ` + described + ` $words[2..-1] 2>/dev/null)
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
