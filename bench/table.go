package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// runTable prints the tables of a file of results.
func runTable(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	in := flags.String("in", "results/results.jsonl", "the results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return writeTables(*in, os.Stdout)
}

// writeTables writes a table for each group, with the median of the repetitions, the
// least and the greatest, and what part of the first row that is.
func writeTables(path string, w io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var groups []string
	rows := map[string][]string{}     // names of a group, in order
	results := map[string][]*result{} // of a group and name
	for lines := json.NewDecoder(file); ; {
		r := &result{}
		if err := lines.Decode(r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		group, key := r.group(), r.group()+r.name()
		if rows[group] == nil {
			groups = append(groups, group)
		}
		if results[key] == nil {
			rows[group] = append(rows[group], r.name())
		}
		results[key] = append(results[key], r)
	}
	for _, group := range groups {
		fmt.Fprintf(w, "## %s\n\n| | version | messages/s: median (least–greatest) | of the first | runs | remarks |\n|---|---|---|---|---|---|\n", group)
		first := 0.
		for _, name := range rows[group] {
			list := results[group+name]
			rates := make([]float64, len(list))
			for i, r := range list {
				rates[i] = r.Rate
			}
			slices.Sort(rates)
			median := (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
			first = cmp.Or(first, median)
			fmt.Fprintf(w, "| %s | %s | %.0f (%.0f–%.0f) | %.2f | %d | %s |\n",
				name, list[0].Version, median, rates[0], rates[len(rates)-1], median/first, len(list), worst(list).remarks())
		}
		fmt.Fprintln(w)
	}
	return nil
}

// worst puts the worst that was seen in any repetition together.
func worst(list []*result) *result {
	w := &result{}
	for _, r := range list {
		w.Lost, w.OutOfOrder, w.Failed = max(w.Lost, r.Lost), max(w.OutOfOrder, r.OutOfOrder), max(w.Failed, r.Failed)
		if r.Foreign != nil && (w.Foreign == nil || *r.Foreign > *w.Foreign) {
			w.Foreign = r.Foreign
		}
	}
	return w
}

// remarks says what a rate does not.
func (r *result) remarks() string {
	var list []string
	for _, c := range []struct {
		n    int64
		what string
	}{{r.Lost, "lost"}, {r.OutOfOrder, "out of order"}, {r.Failed, "failed"}} {
		if c.n > 0 {
			list = append(list, fmt.Sprint(c.n, " ", c.what))
		}
	}
	if r.Foreign != nil {
		list = append(list, fmt.Sprintf("%.0f %% of the CPU elsewhere", max(*r.Foreign*100, 0)))
	}
	return strings.Join(list, ", ")
}
