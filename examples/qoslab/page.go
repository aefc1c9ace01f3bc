// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodetest"
)

// page has the template, the script and the style of the pages, and the plotting library uPlot.
//
//go:embed page/page.html page/*.js page/page.css page/uplot/uPlot.iife.min.js page/uplot/uPlot.min.css page/uplot/LICENSE
var page embed.FS

// pageInput is the input of the template.
type pageInput struct {
	Scenario *scenario
	Facts    []string
	Totals   []total  // of a comparison
	Pods     []podRow // of a comparison
	Values   []valueRow
	Variable string // of a sweep
	Library  template.JS
	Script   template.JS
	Style    template.CSS
	Data     template.JS
}

// comparison is the data of the plots of a comparison.
type comparison struct {
	Kind     string       `json:"kind"` // compare
	End      float64      `json:"end"`  // seconds
	Memory   float64      `json:"memory"`
	CPUs     int          `json:"cpus"`
	Policies []policyPlot `json:"policies"`
}

// policyPlot is the data of the plots of one policy.
type policyPlot struct {
	Name      string   `json:"name"`
	Threshold float64  `json:"threshold"` // MiB of memory.available
	Seconds   series   `json:"seconds"`
	Node      *track   `json:"node"`
	Classes   []*track `json:"classes"`
	Pods      []*track `json:"pods"`
	Lanes     [][]span `json:"lanes"` // of Pods
	Marks     []mark   `json:"marks"`
}

// mark is an eviction or an OOM kill.
type mark struct {
	Seconds float64 `json:"seconds"`
	Kind    string  `json:"kind"` // evicted or oom
	Pod     string  `json:"pod"`
}

// writeComparison writes the page of a comparison.
func writeComparison(w io.Writer, s *scenario, runs []*outcome) error {
	first := &runs[0].samples[0]
	data := comparison{Kind: "compare", End: runs[0].end().Seconds(), Memory: float64(first.Memory) / mebi, CPUs: first.CPUs}
	input := pageInput{Scenario: s}
	for _, r := range runs {
		t := tracksOf(r)
		rows := podRows(r, t)
		input.Pods = append(input.Pods, rows...)
		input.Totals = append(input.Totals, totalOf(r, t, rows))
		plot := policyPlot{
			Name: r.policy.name, Threshold: float64(r.threshold) / mebi, Seconds: t.Seconds, Node: t.Node, Classes: t.Classes, Pods: t.Pods, Marks: []mark{},
		}
		for _, pod := range t.Pods {
			plot.Lanes = append(plot.Lanes, spansOf(r.log, corev1.NamespaceDefault+"/"+pod.Name, r.end()))
		}
		for i := range r.log {
			if e := &r.log[i]; isLoss(e) {
				m := mark{Seconds: e.At.Seconds(), Kind: "evicted", Pod: strings.TrimPrefix(e.Pod, corev1.NamespaceDefault+"/")}
				if e.Kind == nodetest.KindOOM {
					m.Kind = "oom"
				}
				plot.Marks = append(plot.Marks, m)
			}
		}
		data.Policies = append(data.Policies, plot)
		data.End = max(data.End, r.end().Seconds())
	}
	slices.SortStableFunc(input.Pods, func(a, b podRow) int { return naturalCompare(a.Pod, b.Pod) })
	input.Facts = []string{
		fmt.Sprintf("%d CPUs", first.CPUs), showMiB(data.Memory) + " of memory", fmt.Sprintf("%d pods", len(data.Policies[0].Pods)), showSeconds(data.End),
	}
	return writePage(w, &input, data)
}

// naturalCompare compares names. If only the number at the end differs, the shorter name comes first: pod-9 is before pod-10.
func naturalCompare(a, b string) int {
	const digits = "0123456789"
	if strings.TrimRight(a, digits) == strings.TrimRight(b, digits) {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// frontier is the data of the plots of a sweep.
type frontier struct {
	Kind     string     `json:"kind"` // sweep
	Variable string     `json:"variable"`
	Bytes    bool       `json:"bytes"` // the variable is a number of bytes
	Policies []string   `json:"policies"`
	Runs     []sweepRun `json:"runs"`
}

// valueRow is a row of the table of a sweep: the means over all runs of a policy with one value.
type valueRow struct {
	Policy, Shown                                                string // Shown is Value for readers
	Value                                                        float64
	Runs                                                         int
	Utilisation, CPU, Evictions, OOMKills, NotReady, MemoryStall float64
}

// valueRows returns the means of the runs by value and policy.
func valueRows(policies []*policy, runs []sweepRun) (rows []valueRow) {
	for _, p := range policies {
		for _, r := range runs {
			if r.Policy != p.name {
				continue
			}
			i := slices.IndexFunc(rows, func(row valueRow) bool { return row.Policy == r.Policy && row.Value == r.Value })
			if i < 0 {
				i, rows = len(rows), append(rows, valueRow{Policy: r.Policy, Value: r.Value})
			}
			row := &rows[i]
			n := float64(row.Runs)
			for _, mean := range []struct {
				of  *float64
				add float64
			}{
				{&row.Utilisation, r.Utilisation},
				{&row.CPU, r.CPU},
				{&row.Evictions, float64(r.Evictions)},
				{&row.OOMKills, float64(r.OOMKills)},
				{&row.NotReady, r.NotReady},
				{&row.MemoryStall, r.MemoryPressure},
			} {
				*mean.of = (*mean.of*n + mean.add) / (n + 1)
			}
			row.Runs++
		}
	}
	return rows
}

// writeFrontier writes the page of a sweep.
func writeFrontier(w io.Writer, s *scenario, sw *sweep, policies []*policy, runs []sweepRun) error {
	data := frontier{Kind: "sweep", Variable: sw.Name, Bytes: sw.bytes, Runs: runs}
	for _, p := range policies {
		data.Policies = append(data.Policies, p.name)
	}
	input := pageInput{Scenario: s, Variable: sw.Name, Values: valueRows(policies, runs)}
	for i := range input.Values {
		input.Values[i].Shown = sw.formatValue(input.Values[i].Value)
	}
	input.Facts = []string{fmt.Sprintf("%d runs per policy", len(runs)/len(policies)), fmt.Sprintf("%s from %s to %s", sw.Name, sw.formatValue(sw.from), sw.formatValue(sw.to))}
	return writePage(w, &input, data)
}

// writePage writes a page with the data of its plots.
func writePage(w io.Writer, input *pageInput, data any) error {
	encoded, err := json.Marshal(data) // escapes <, > and &, so that it cannot end the script element
	if err != nil {
		return err
	}
	text := map[string]string{}
	for _, name := range []string{"page.js", "compare.js", "sweep.js", "page.css", "uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE"} {
		content, err := page.ReadFile("page/" + name)
		if err != nil {
			return err
		}
		text[name] = string(content)
	}
	input.Data = template.JS(encoded)
	input.Library = template.JS("/*\n" + text["uplot/LICENSE"] + "*/\n" + text["uplot/uPlot.iife.min.js"])
	input.Script = template.JS(text["page.js"] + text["compare.js"] + text["sweep.js"])
	input.Style = template.CSS(text["uplot/uPlot.min.css"] + text["page.css"])
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"mib": showMiB, "seconds": showSeconds, "amount": showAmount, "share": percentOf, "larger": func(a, b float64) float64 { return max(a, b) },
	}).ParseFS(page, "page/page.html")
	if err != nil {
		return err
	}
	return t.Execute(w, input)
}

// showMiB formats a number of MiB.
func showMiB(v float64) string {
	if v >= 1024 {
		return fmt.Sprintf("%.4g GiB", v/1024)
	}
	return fmt.Sprintf("%.0f MiB", v)
}

// showSeconds formats a number of seconds.
func showSeconds(v float64) string {
	if v < 60 {
		return showAmount(math.Round(v*10)/10) + " s"
	}
	n := int(math.Round(v))
	h, m, s := n/3600, n/60%60, n%60
	switch {
	case h > 0 && m == 0 && s == 0:
		return fmt.Sprintf("%d h", h)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d h", h, m, s)
	case s == 0:
		return fmt.Sprintf("%d min", m)
	}
	return fmt.Sprintf("%d:%02d min", m, s)
}

// showAmount formats a number with two decimals at most.
func showAmount(v float64) string { return formatNumber(math.Round(v*100) / 100) }

// percentOf returns 100*part/whole, at most 100.
func percentOf(part, whole float64) float64 {
	return min(100, 100*part/max(whole, 1e-9))
}
