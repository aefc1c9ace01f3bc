// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// group is a collector with all metrics of one package. It is registered as a whole: New fails if one of the names is already
// registered. The metrics appear on the page once the group is enabled. Before, they would have the value 0 instead of an unknown
// value.
type group struct {
	metrics    *Metrics
	name       string
	enabled    atomic.Bool
	collectors []prometheus.Collector
}

// Describe implements prometheus.Collector.
func (g *group) Describe(descs chan<- *prometheus.Desc) {
	for _, member := range g.collectors {
		member.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (g *group) Collect(metrics chan<- prometheus.Metric) {
	if !g.enabled.Load() {
		return
	}
	for _, member := range g.collectors {
		member.Collect(metrics)
	}
}

// labels has the label names of a metric, without the excluded ones. The field kept has the positions of these names in the
// original list.
type labels struct {
	names []string
	kept  []int
}

// keptLabels returns the names of a metric's labels without those in Options.WithoutLabels. family is the name of the
// metric. It returns false if Options.Without excludes the metric.
func (m *Metrics) keptLabels(family string, names []string) (labels, bool) {
	if matchesAny(m.opts.Without, family) {
		return labels{}, false
	}
	var l labels
	for i, name := range names {
		if !slices.Contains(m.opts.WithoutLabels[family], name) {
			l.names, l.kept = append(l.names, name), append(l.kept, i)
		}
	}
	return l, true
}

// keptValues returns the values of the labels that are not excluded, given the values of all labels. It replaces invalid UTF-8.
func (l *labels) keptValues(values []string) []string {
	kept := make([]string, len(l.kept))
	for i, at := range l.kept {
		kept[i] = strings.ToValidUTF8(values[at], "�")
	}
	return kept
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, _ := path.Match(pattern, name) // New has checked the pattern
		return matched
	})
}

// counter is a counter metric with labels. A nil counter is an excluded metric: its methods do nothing.
type counter struct {
	labels
	vec *prometheus.CounterVec
}

// addCounter adds a counter with these label names to the group. A counter without labels has the value 0 at once, as in the
// kubelet.
func (g *group) addCounter(name, help string, names ...string) *counter {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	c := &counter{l, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, l.names)}
	if len(names) == 0 {
		c.vec.WithLabelValues()
	}
	g.collectors = append(g.collectors, c.vec)
	return c
}

func (c *counter) inc(values ...string) { c.add(1, values...) }

func (c *counter) add(n float64, values ...string) {
	if c != nil {
		c.vec.WithLabelValues(c.keptValues(values)...).Add(n)
	}
}

// remove removes the series with these label values from the page.
func (c *counter) remove(values ...string) {
	// With an excluded label, the series also counts other values of that label, and stays.
	if c != nil && len(c.kept) == len(values) {
		c.vec.DeleteLabelValues(c.keptValues(values)...)
	}
}

// gauge is a gauge metric with labels. A nil gauge is an excluded metric: its methods do nothing.
type gauge struct {
	labels
	vec *prometheus.GaugeVec
}

func (g *group) addGauge(name, help string, names ...string) *gauge {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	v := &gauge{l, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, l.names)}
	if len(names) == 0 {
		v.vec.WithLabelValues()
	}
	g.collectors = append(g.collectors, v.vec)
	return v
}

func (v *gauge) set(n float64, values ...string) {
	if v != nil {
		v.vec.WithLabelValues(v.keptValues(values)...).Set(n)
	}
}

func (v *gauge) add(n float64, values ...string) {
	if v != nil {
		v.vec.WithLabelValues(v.keptValues(values)...).Add(n)
	}
}

// setTime sets the gauge to t in seconds since 1970, or to 0 if t is zero.
func (v *gauge) setTime(t time.Time, values ...string) {
	if t.IsZero() {
		v.set(0, values...)
		return
	}
	v.set(float64(t.UnixNano())/1e9, values...)
}

// histogram is a histogram metric with labels. A nil histogram is an excluded metric: its methods do nothing.
type histogram struct {
	labels
	vec *prometheus.HistogramVec
}

// addHistogram adds a histogram with these label names to the group. Without buckets, it has only the number and sum of the
// observations.
func (g *group) addHistogram(name, help string, buckets []float64, names ...string) *histogram {
	h := g.addLateHistogram(name, help, buckets, names...)
	if h != nil && len(names) == 0 {
		// The page shows the value 0 at once.
		h.vec.WithLabelValues()
	}
	return h
}

// addLateHistogram adds a histogram like addHistogram, but it does not appear on the page before its first observation.
func (g *group) addLateHistogram(name, help string, buckets []float64, names ...string) *histogram {
	l, ok := g.metrics.keptLabels(name, names)
	if !ok {
		return nil
	}
	if len(buckets) == 0 {
		buckets = []float64{math.Inf(1)}
	}
	h := &histogram{l, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, l.names)}
	g.collectors = append(g.collectors, h.vec)
	return h
}

func (h *histogram) observe(duration time.Duration, values ...string) {
	h.observeValue(duration.Seconds(), values...)
}

func (h *histogram) observeValue(n float64, values ...string) {
	if h != nil {
		h.vec.WithLabelValues(h.keptValues(values)...).Observe(n)
	}
}

func (h *histogram) remove(values ...string) {
	if h != nil && len(h.kept) == len(values) {
		h.vec.DeleteLabelValues(h.keptValues(values)...)
	}
}

// computedGauge is a gauge metric whose values are computed each time the page is requested. A nil computedGauge is an excluded
// metric.
type computedGauge struct {
	labels
	desc *prometheus.Desc
}

func (m *Metrics) newComputedGauge(name, help string, names ...string) *computedGauge {
	l, ok := m.keptLabels(name, names)
	if !ok {
		return nil
	}
	return &computedGauge{l, prometheus.NewDesc(name, help, l.names, nil)}
}

// gaugeValues has the values of computed gauges for one request of the page. The values of series that differ only in excluded
// labels are added.
type gaugeValues map[*computedGauge]map[string]*gaugeValue

type gaugeValue struct {
	values []string
	n      float64
}

func (t gaugeValues) addValue(l *computedGauge, n float64, values ...string) {
	if l == nil {
		return
	}
	kept := l.keptValues(values)
	key := strings.Join(kept, "\xff")
	if t[l] == nil {
		t[l] = map[string]*gaugeValue{}
	}
	if t[l][key] == nil {
		t[l][key] = &gaugeValue{values: kept}
	}
	t[l][key].n += n
}

func (t gaugeValues) sendMetrics(metrics chan<- prometheus.Metric) {
	for l, sums := range t {
		for _, s := range sums {
			metrics <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, s.n, s.values...)
		}
	}
}
