package main

import (
	"bytes"
	"fmt"
	"strings"

	urfave "github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/cli"
	"github.com/postlane-go/postlane/internal/settings"
)

// shared are the flags that are described once, in the configuration.
func shared() map[string]bool {
	names := map[string]bool{"help": true}
	for _, f := range settings.Flags(^settings.Need(0)) {
		names[f.Names()[0]] = true
	}
	return names
}

func commandLine(w *bytes.Buffer) error {
	fmt.Fprint(w, `# Command line

A command prints its results on standard output and errors on standard error; with `+"`-json`"+` it prints JSON. It exits 0
only on success, and 2 for wrong usage. Flags that every command of its kind has, such as `+"`-database-url`"+`, are in the
[configuration](configuration.md).

`)
	describe(w, "", cli.Commands(), shared())
	return nil
}

func describe(w *bytes.Buffer, before string, c *urfave.Command, known map[string]bool) {
	name := strings.TrimSpace(before + " " + c.Name)
	if len(c.Commands) == 0 {
		fmt.Fprintf(w, "## %s\n\n%s.\n\n```\n%s\n```\n\n", name, upper(c.Usage), strings.TrimSpace(name+" [flags] "+c.ArgsUsage))
		rows := 0
		for _, f := range c.Flags {
			d, ok := f.(urfave.DocGenerationFlag)
			if !ok || known[f.Names()[0]] || f.Names()[0] == "json" {
				continue
			}
			if rows++; rows == 1 {
				fmt.Fprint(w, "| flag | |\n|---|---|\n")
			}
			fmt.Fprintf(w, "| `-%s` | %s |\n", f.Names()[0], cell(d))
		}
		if rows > 0 {
			fmt.Fprintln(w)
		}
	}
	for _, sub := range c.Commands {
		if !sub.Hidden {
			describe(w, name, sub, known)
		}
	}
}

// cell is what a flag is for, and its default.
func cell(f urfave.DocGenerationFlag) string {
	text := strings.ReplaceAll(f.GetUsage(), "|", `\|`)
	value := strings.Trim(f.GetValue(), `"`)
	if !f.IsDefaultVisible() || value == "" || value == "false" || value == "0" || value == "[]" || strings.HasPrefix(value, "0001-") || strings.HasPrefix(value, "map[") ||
		strings.Contains(text, "default:") {
		return text
	}
	return fmt.Sprintf("%s (default: `%s`)", text, value)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func configuration(w *bytes.Buffer) error {
	fmt.Fprint(w, `# Configuration

Each setting is an environment variable and a flag of the same name; the flag wins. What is missing or wrong is refused at
start, all of it at once. Secrets belong into the environment or a file, since flags show in process lists.

| environment | flag | |
|---|---|---|
`)
	for _, f := range settings.Flags(^settings.Need(0)) {
		d, ok := f.(urfave.DocGenerationFlag)
		if !ok {
			return fmt.Errorf("%s describes nothing", f.Names()[0])
		}
		fmt.Fprintf(w, "| `%s` | `-%s` | %s |\n", settings.Env(f.Names()[0]), f.Names()[0], cell(d))
	}
	return nil
}
