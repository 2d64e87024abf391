package console

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
)

// A chart is an SVG that stretches to the width it is given, with its labels beside it as
// text, so that they keep their size. Everything in it is a number or a word of ours;
// nothing that anybody else wrote comes near it.
type chart struct {
	// Summary says in a sentence what a reader sees.
	Summary string
	Lines   []legend
	// Top, Middle and Bottom are the labels of the upright axis.
	Top, Middle, Bottom string
	// Marks are the labels of the level axis, left to right.
	Marks []string
	SVG   template.HTML
	// Rows are the numbers, for who would rather read them.
	Columns []string
	Rows    [][]string
	Empty   bool
}

type legend struct{ Class, Label string }

const (
	chartWide = 1000
	chartHigh = 160
)

// coarser joins every n points of a series, the last ones complete.
func (s *series) coarser(n int) []tally {
	var points []tally
	for i := len(s.Points); i > 0; i -= n {
		from := max(0, i-n)
		t := tally{At: s.Points[from].At}
		for j := from; j < i; j++ {
			t.merge(&s.Points[j])
		}
		points = append(points, t)
	}
	slices.Reverse(points)
	return points
}

// rateChart shows what was tried, step by step: what failed on top of what was delivered.
func rateChart(points []tally, step time.Duration) *chart {
	c := newChart(points)
	c.Columns = []string{"From", "Delivered", "Failed"}
	c.Lines = []legend{{"good", "delivered"}, {"bad", "failed attempts"}}
	most, delivered, failed := int64(0), int64(0), int64(0)
	for i := range points {
		most = max(most, points[i].Total())
		delivered += points[i].Delivered
		failed += points[i].Failed
	}
	c.Empty = most == 0
	top := niceAbove(float64(most))
	c.Top, c.Middle, c.Bottom = compact(top), compact(top/2), "0"
	if top < 10 && top/2 != math.Trunc(top/2) {
		c.Middle = "" // there are no halves
	}
	c.Summary = fmt.Sprintf("%s delivered and %s failed attempts; at most %s in %s.", number(delivered), number(failed), number(most), span(step))
	var b strings.Builder
	wide := float64(chartWide) / float64(len(points))
	for i := range points {
		p := &points[i]
		x := float64(i)*wide + wide*0.12
		width := wide * 0.76
		y := float64(chartHigh)
		begun := ""
		if i == len(points)-1 {
			begun = ` class="begun"` // and not over
		}
		fmt.Fprintf(&b, `<g%s><title>%s: %s delivered, %s failed</title><rect class="hit" x="%.2f" y="0" width="%.2f" height="%d"/>`,
			begun, p.At.UTC().Format("15:04 UTC"), number(p.Delivered), number(p.Failed), float64(i)*wide, wide, chartHigh)
		for _, part := range []struct {
			class string
			n     int64
		}{{"good", p.Delivered}, {"bad", p.Failed}} {
			if part.n == 0 {
				continue
			}
			high := math.Max(float64(part.n)/top*chartHigh, 1.5)
			y = math.Max(y-high, 0)
			fmt.Fprintf(&b, `<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, part.class, x, y, width, high)
		}
		b.WriteString(`</g>`)
		if p.Total() > 0 {
			c.Rows = append(c.Rows, []string{p.At.UTC().Format("15:04 UTC"), number(p.Delivered), number(p.Failed)})
		}
	}
	c.draw(b.String())
	return c
}

// latencyChart shows the median and the 95th percentile, step by step.
func latencyChart(points []tally, what string, of func(*tally) *histogram) *chart {
	c := newChart(points)
	c.Columns = []string{"From", "p50", "p95"}
	c.Lines = []legend{{"p50", "p50, half take less"}, {"p95", "p95, one in twenty takes more"}}
	most := time.Duration(0)
	all := histogram{}
	for i := range points {
		h := of(&points[i])
		all.merge(h)
		most = max(most, h.quantile(0.95))
	}
	c.Empty = all.total() == 0
	top := niceAbove(float64(most) / float64(time.Millisecond))
	c.Top, c.Middle, c.Bottom = duration(time.Duration(top*1e6)), duration(time.Duration(top/2*1e6)), "0"
	c.Summary = fmt.Sprintf("%s: p50 %s, p95 %s.", what, duration(all.quantile(0.5)), duration(all.quantile(0.95)))
	if c.Empty {
		c.Summary = what + ": nothing was measured."
	}
	wide := float64(chartWide) / float64(len(points))
	var b strings.Builder
	for _, line := range []struct {
		class string
		q     float64
	}{{"p95", 0.95}, {"p50", 0.5}} {
		path, open := strings.Builder{}, false
		for i := range points {
			v := of(&points[i]).quantile(line.q)
			if v < 0 {
				open = false
				continue
			}
			x, y := (float64(i)+0.5)*wide, chartHigh-float64(v)/1e6/top*chartHigh
			if open {
				fmt.Fprintf(&path, "L%.2f %.2f", x, y)
			} else { // a lone point is a short line
				fmt.Fprintf(&path, "M%.2f %.2fL%.2f %.2f", x-wide*0.25, y, x, y)
			}
			open = true
		}
		fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, line.class, path.String())
	}
	for i := range points {
		h := of(&points[i])
		if h.total() == 0 {
			continue
		}
		from, p50, p95 := points[i].At.UTC().Format("15:04 UTC"), duration(h.quantile(0.5)), duration(h.quantile(0.95))
		fmt.Fprintf(&b, `<g><title>%s: p50 %s, p95 %s</title><rect class="hit" x="%.2f" y="0" width="%.2f" height="%d"/></g>`,
			from, p50, p95, float64(i)*wide, wide, chartHigh)
		c.Rows = append(c.Rows, []string{from, p50, p95})
	}
	c.draw(b.String())
	return c
}

func newChart(points []tally) *chart {
	c := &chart{}
	const marks = 4
	for i := range marks {
		c.Marks = append(c.Marks, points[i*(len(points)-1)/marks].At.UTC().Format("15:04"))
	}
	c.Marks = append(c.Marks, "now, UTC")
	return c
}

// draw makes the SVG of what is in it, which is numbers and words of this package.
func (c *chart) draw(inside string) {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s" focusable="false">`,
		chartWide, chartHigh, template.HTMLEscapeString(c.Summary))
	for _, y := range []int{0, chartHigh / 2, chartHigh} {
		fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%d" y1="%d" y2="%d"/>`, chartWide, y, y)
	}
	b.WriteString(inside)
	b.WriteString(`</svg>`)
	c.SVG = template.HTML(b.String()) //nolint:gosec // numbers and words of this package
}

// sparkline is a day in a table's cell, an hour a bar.
func sparkline(s *series) template.HTML {
	const high, bar = 22, 5
	most := int64(0)
	total := s.sum()
	for i := range s.Points {
		most = max(most, s.Points[i].Total())
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Last 24 hours: %s delivered, %s failed attempts" focusable="false">`,
		len(s.Points)*bar, high, len(s.Points)*bar, high, number(total.Delivered), number(total.Failed))
	for i := range s.Points {
		p := &s.Points[i]
		x := i * bar
		if p.Total() == 0 {
			fmt.Fprintf(&b, `<rect class="none" x="%d" y="%d" width="%d" height="1"/>`, x, high-1, bar-1)
			continue
		}
		y := float64(high)
		for _, part := range []struct {
			class string
			n     int64
		}{{"good", p.Delivered}, {"bad", p.Failed}} {
			if part.n > 0 {
				h := math.Max(float64(part.n)/float64(most)*(high-2), 1.5)
				y = math.Max(y-h, 0)
				fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.1f" width="%d" height="%.1f"/>`, part.class, x, y, bar-1, h)
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and words of this package
}

// share is a part of a stacked bar.
type share struct {
	Class, Sign, Label, Count string
	n                         int64
}

// stackedBar shows parts side by side, each wide enough to be seen.
func stackedBar(parts []share) template.HTML {
	total := int64(0)
	for _, p := range parts {
		total += p.n
	}
	var b strings.Builder
	var words []string
	for _, p := range parts {
		words = append(words, p.Count+" "+p.Label)
	}
	fmt.Fprintf(&b, `<svg class="stack" viewBox="0 0 %d 12" preserveAspectRatio="none" role="img" aria-label="%s" focusable="false">`,
		chartWide, template.HTMLEscapeString(strings.Join(words, ", ")))
	if total == 0 {
		fmt.Fprintf(&b, `<rect class="none" x="0" y="0" width="%d" height="12"/>`, chartWide)
	}
	x := 0.0
	scale := widths(parts, total)
	for i, p := range parts {
		if p.n == 0 {
			continue
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="0" width="%.1f" height="12"><title>%s %s</title></rect>`,
			p.Class, x, math.Max(scale[i]-2, 1), template.HTMLEscapeString(p.Count), template.HTMLEscapeString(p.Label))
		x += scale[i]
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // numbers and words of this package, escaped
}

// widths shares the width out, with at least a hundredth for what is not nothing.
func widths(parts []share, total int64) []float64 {
	const least = chartWide / 100
	out := make([]float64, len(parts))
	sum := 0.0
	for i, p := range parts {
		if p.n > 0 {
			out[i] = math.Max(float64(p.n)/float64(max(total, 1))*chartWide, least)
			sum += out[i]
		}
	}
	for i := range out {
		out[i] *= chartWide / math.Max(sum, 1)
	}
	return out
}

// niceAbove is a round number that is at least n.
func niceAbove(n float64) float64 {
	if n <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(n)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if m*unit >= n {
			return m * unit
		}
	}
	return 10 * unit
}

// compact writes a number for an axis.
func compact(n float64) string {
	switch {
	case n >= 1e6:
		return trim(n/1e6) + " M"
	case n >= 1e4:
		return trim(n/1e3) + " k"
	}
	if n == math.Trunc(n) {
		return number(int64(n))
	}
	return trim(n)
}

func trim(n float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") }
