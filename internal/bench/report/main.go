// Command report writes the table and the chart of docs/performance.md from the raw
// results of `postlane bench`, one JSON object a line, of which the last of a scenario and
// its settings counts. Run in the repository's root by scripts/performance.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

const (
	results = "docs/performance/results.jsonl"
	page    = "docs/performance.md"
	chart   = "docs/performance/ratios.svg"
	begin   = "<!-- written by scripts/performance: begin -->\n"
	end     = "<!-- end -->\n"
)

// row is a figure of a scenario, and what it is meant to be.
type row struct {
	scenario string
	delay    float64
	figure   string // a path through the objects
	what     string
	bar      float64
	atMost   bool
	unit     string
}

var rows = []row{
	{"claim-flat", 0, "worst_ratio", "time per claimed delivery at the large backlog over 1,000, worst of 7 shapes", 1.5, true, ""},
	{"throughput", 0, "ratio", "deliveries/s over raw signed HTTP, streams of many", 0.6, false, ""},
	{"throughput", 0, "own_streams.ratio", "the same, each delivery a stream of its own", 0.6, false, ""},
	{"throughput", 50, "ratio", "the same, an endpoint that answers after 50 ms, streams of many", 0.6, false, ""},
	{"throughput", 50, "own_streams.ratio", "the same, each delivery a stream of its own", 0.6, false, ""},
	{"enqueue", 0, "ratios.1", "commits/s with an Enqueue over a plain INSERT, 1 connection", 0.75, false, ""},
	{"enqueue", 0, "ratios.8", "8 connections", 0.75, false, ""},
	{"enqueue", 0, "ratios.32", "32 connections", 0.75, false, ""},
	{"latency", 0, "p50_ms", "commit to arrival, median", 3, true, " ms"},
	{"latency", 0, "p99_ms", "commit to arrival, 99th percentile", 10, true, " ms"},
	{"neighbour", 0, "ratio", "99th percentile beside a hanging endpoint over alone", 2, true, ""},
	{"hot-stream", 0, "ratio", "one stream over a sequential client without a database", 0.5, false, ""},
	{"held-snapshot", 0, "ratio", "last 10 s over first 10 s beside an old snapshot", 0.8, false, ""},
	{"held-snapshot", 0, "free_ratio", "the same without it", 0, false, ""},
	{"memory", 0, "rss_mb", "memory of a server with the backlog due", 100, true, " MB"},
	{"soak", 0, "ratio", "last minute over first, at half the greatest rate", 0.95, false, ""},
	{"soak", 0, "hot_share", "HOT share of lease renewals", 0.95, false, ""},
	{"idle", 0, "statements_per_s", "statements a second of an idle server", 5, true, ""},
	{"idle", 0, "cpu_percent", "its CPU, of one core", 1, true, " %"},
}

func main() {
	if err := report(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func report() error {
	found, err := read()
	if err != nil {
		return err
	}
	var table strings.Builder
	table.WriteString("| scenario | what | bar | measured | |\n|---|---|---|---|---|\n")
	var bars []bar
	for _, r := range rows {
		value, ok := lookUp(found[key(r.scenario, r.delay)], r.figure)
		if !ok {
			continue
		}
		bound, met := "", ""
		if r.bar > 0 {
			sign := "≥"
			if r.atMost {
				sign = "≤"
			}
			bound = fmt.Sprintf("%s %v%s", sign, r.bar, r.unit)
			met = "not met"
			if (value <= r.bar) == r.atMost || value == r.bar {
				met = "met"
			}
			bars = append(bars, bar{r.scenario + ", " + r.what, value / r.bar, r.atMost, met == "met"})
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %.3g%s | %s |\n", r.scenario, r.what, bound, value, r.unit, met)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o600); err != nil {
		return err
	}
	return os.WriteFile(chart, draw(bars), 0o600)
}

func key(scenario string, delay float64) string { return fmt.Sprint(scenario, " ", delay) }

func read() (map[string]map[string]any, error) {
	f, err := os.Open(results)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found := map[string]map[string]any{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r map[string]any
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", results, err)
		}
		scenario, _ := r["scenario"].(string)
		delay, _ := r["delay_ms"].(float64)
		found[key(scenario, delay)] = r
	}
	return found, lines.Err()
}

func lookUp(r map[string]any, figure string) (float64, bool) {
	var at any = r
	for name := range strings.SplitSeq(figure, ".") {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	value, ok := at.(float64)
	return value, ok
}

// bar is a figure as a share of what it is meant to be.
type bar struct {
	name   string
	share  float64
	atMost bool
	met    bool
}

// draw draws each figure beside its bar, which is the line at 1.
func draw(bars []bar) []byte {
	const left, unit, height = 470, 220, 24
	var b bytes.Buffer
	total := 50 + height*len(bars)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", left+2*unit+60, total)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="18">measured ÷ bar; the line is the bar, the arrow says which side is good</text>`+"\n", left-100)
	for i, x := range bars {
		y := 34 + i*height
		colour := "#b45309"
		if x.met {
			colour = "#15803d"
		}
		arrow := "▶"
		if x.atMost {
			arrow = "◀"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s %s</text><rect x="%d" y="%d" width="%.0f" height="14" fill="%s"/><text x="%.0f" y="%d">%.2f</text>`+"\n",
			left-8, y+12, x.name, arrow, left, y+1, unit*min(x.share, 2), colour, left+6+unit*min(x.share, 2), y+12, x.share)
	}
	fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="28" y2="%d" stroke="black"/></svg>`+"\n", left+unit, left+unit, total-8)
	return b.Bytes()
}
