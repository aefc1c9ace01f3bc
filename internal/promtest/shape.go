// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package promtest

import (
	"embed"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// kubelet has the shapes of the kubelet's pages, as written by `make metrics`.
//
//go:embed kubelet/*.txt
var kubelet embed.FS

// Pages of a kubelet, by the last part of their path.
const (
	PageMetrics  = "metrics"  // /metrics
	PageProbes   = "probes"   // /metrics/probes
	PageResource = "resource" // /metrics/resource
	PageCadvisor = "cadvisor" // /metrics/cadvisor
	PageSLIs     = "slis"     // /metrics/slis
)

// Family is the shape of a metric: its name, type, labels and buckets, without values.
type Family struct {
	Name    string
	Type    string    // counter, gauge, histogram, summary or untyped
	Labels  []string  // label names of all series together, sorted, without le and quantile
	Buckets []float64 // upper bounds of a histogram without +Inf, or quantiles of a summary
}

// String returns f as a line that [ParseList] can parse.
func (f Family) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s {%s}", f.Name, f.Type, strings.Join(f.Labels, ","))
	for _, bound := range f.Buckets {
		b.WriteString(" " + strconv.FormatFloat(bound, 'g', -1, 64))
	}
	return b.String()
}

// Kubelet returns the metric families on a page of a running kubelet, such as [PageCadvisor], sorted by name. [PageMetrics]
// also has families that had no series then, from the code of the kubelet.
func Kubelet(page string) ([]Family, error) {
	files := []string{page}
	if page == PageMetrics {
		files = append(files, "code")
	}
	var families []Family
	for _, file := range files {
		text, err := kubelet.ReadFile("kubelet/" + file + ".txt")
		if err != nil {
			return nil, fmt.Errorf("read shape of page %q: %w", page, err)
		}
		list, err := ParseList(string(text))
		if err != nil {
			return nil, fmt.Errorf("read shape of page %q: %w", page, err)
		}
		families = append(families, list...)
	}
	sortByName(families)
	return families, nil
}

func sortByName(families []Family) {
	slices.SortFunc(families, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
}

// Parse returns the metric families on a page in the text format of Prometheus, sorted by name.
func Parse(page io.Reader) ([]Family, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("parse page: %w", err)
	}
	return Shape(slices.Collect(maps.Values(families))), nil
}

// Shape returns the name, type, labels and buckets of each metric family, without values. The result is sorted by name.
func Shape(families []*dto.MetricFamily) []Family {
	shape := make([]Family, 0, len(families))
	for _, family := range families {
		shape = append(shape, newFamily(family))
	}
	sortByName(shape)
	return shape
}

func newFamily(family *dto.MetricFamily) Family {
	labels, bounds := map[string]bool{}, map[float64]bool{}
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = true
		}
		for _, bucket := range metric.GetHistogram().GetBucket() {
			bounds[bucket.GetUpperBound()] = true
		}
		for _, quantile := range metric.GetSummary().GetQuantile() {
			bounds[quantile.GetQuantile()] = true
		}
	}
	delete(bounds, math.Inf(1))
	return Family{
		Name:    family.GetName(),
		Type:    strings.ToLower(family.GetType().String()),
		Labels:  slices.Sorted(maps.Keys(labels)),
		Buckets: slices.Sorted(maps.Keys(bounds)),
	}
}

// ParseList parses a text with one metric family per line. Empty lines and lines that start with # are ignored.
func ParseList(text string) ([]Family, error) {
	var list []Family
	for number, line := range listLines(text) {
		family, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", number, line, err)
		}
		list = append(list, family)
	}
	return list, nil
}

func parseLine(line string) (Family, error) {
	fields := strings.Fields(line)
	if len(fields) < 3 || !strings.HasPrefix(fields[2], "{") || !strings.HasSuffix(fields[2], "}") {
		return Family{}, fmt.Errorf("want NAME TYPE {LABEL,...} BUCKET")
	}
	family := Family{Name: fields[0], Type: fields[1]}
	if labels := strings.Trim(fields[2], "{}"); labels != "" {
		family.Labels = strings.Split(labels, ",")
	}
	for _, field := range fields[3:] {
		bound, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return Family{}, fmt.Errorf("bucket: %w", err)
		}
		family.Buckets = append(family.Buckets, bound)
	}
	return family, nil
}

// listLines yields the number and the text of each line. It omits empty lines and comments.
func listLines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") && !yield(number, line) {
				return
			}
		}
	}
}
